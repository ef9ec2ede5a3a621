"""Gradients of tables: a search over rows of numbers and levels."""

from exhume.attacks.gradients.tables.tableak import TabLeak

__all__ = ["TabLeak"]
