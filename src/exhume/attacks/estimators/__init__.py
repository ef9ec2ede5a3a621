"""Attacks on any fitted scikit-learn estimator; all other training records are known."""

from exhume.attacks.estimators.refit import Refit
from exhume.attacks.estimators.stored_records import StoredRecords
from exhume.attacks.estimators.tree_cells import TreeCells

__all__ = ["Refit", "StoredRecords", "TreeCells"]
