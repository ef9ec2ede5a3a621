"""The command line: one file a command."""

from exhume.cli.main import main

__all__ = ["main"]
