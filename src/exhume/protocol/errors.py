"""Errors that a user can act on: what was wrong, which value, what would be right."""

from __future__ import annotations


class ExhumeError(Exception):
    """Base of every error Exhume raises on purpose; the command line prints it in one line."""


class InputError(ExhumeError, ValueError):
    """An input of Exhume is wrong: a value, a shape, a file, a key."""


class StoreError(ExhumeError):
    """A run folder can't be used as asked: locked, of another audit, damaged, or disk full."""


class DivergedError(InputError):
    """A training diverged to NaN or infinity."""
