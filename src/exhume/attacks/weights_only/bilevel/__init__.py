"""Reconstruction as a bilevel problem: find records whose training gives the released weights."""

from exhume.attacks.weights_only.bilevel.attack import Bilevel

__all__ = ["Bilevel"]
