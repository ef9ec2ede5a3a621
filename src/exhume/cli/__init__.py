"""The command line: one file per command."""

from exhume.cli.main import main

__all__ = ["main"]
