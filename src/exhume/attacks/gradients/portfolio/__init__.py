"""A portfolio of all attacks on a gradient, with one budget."""

from exhume.attacks.gradients.portfolio.portfolio import Portfolio

__all__ = ["Portfolio"]
