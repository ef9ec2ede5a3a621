"""Reconstruction as a bilevel problem: training records whose training gives these weights."""

from exhume.attacks.bilevel.attack import Bilevel

__all__ = ["Bilevel"]
