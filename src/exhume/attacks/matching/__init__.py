"""Gradient matching: one loop (``core``), and the attacks that are settings of it."""

from exhume.attacks.matching.attacks import (
    DLG,
    IDLG,
    BatchNormMatching,
    Geiping,
    GenerativePrior,
)
from exhume.attacks.matching.feature_inversion import FeatureInversion
from exhume.attacks.matching.liu import LiuMatching

__all__ = [
    "DLG",
    "IDLG",
    "BatchNormMatching",
    "FeatureInversion",
    "Geiping",
    "GenerativePrior",
    "LiuMatching",
]
