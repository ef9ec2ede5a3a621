"""Learned attacks: regression and networks from shadow models to records."""

from exhume.attacks.reconstructor.attack import Reconstructor

__all__ = ["Reconstructor"]
