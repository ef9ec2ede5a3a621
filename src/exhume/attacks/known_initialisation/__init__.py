"""Attacks on the change of the weights since an initialisation that the adversary knows."""

from exhume.attacks.known_initialisation.attack import KnownInitialisation
from exhume.attacks.known_initialisation.sparsity import ChangeSparsity

__all__ = ["ChangeSparsity", "KnownInitialisation"]
