"""All attacks on a gradient under one budget."""

from exhume.attacks.portfolio.attack import Portfolio

__all__ = ["Portfolio"]
