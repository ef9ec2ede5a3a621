"""The report: a run folder as one self-contained page. It reads records, and only records."""

from exhume.report.render import render

__all__ = ["render"]
