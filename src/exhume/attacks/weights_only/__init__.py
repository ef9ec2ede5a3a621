"""Attacks on trained weights: stationarity, the first layer's row space, known initialisation."""

from exhume.attacks.weights_only.change_sparsity import ChangeSparsity
from exhume.attacks.weights_only.kkt import KKT
from exhume.attacks.weights_only.known_initialisation import KnownInitialisation
from exhume.attacks.weights_only.row_space import RowSpace

__all__ = ["KKT", "ChangeSparsity", "KnownInitialisation", "RowSpace"]
