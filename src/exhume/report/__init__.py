"""The report: a run folder as one self-contained page. It reads records, and only records."""

from exhume.report.markdown import markdown, model_card
from exhume.report.page import render
from exhume.report.pdf import print_pdf

__all__ = ["markdown", "model_card", "print_pdf", "render"]
