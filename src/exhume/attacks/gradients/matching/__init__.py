"""Gradient matching: one loop (``loop``), and attacks that are settings of it."""

from exhume.attacks.gradients.matching.dlg import DLG, IDLG
from exhume.attacks.gradients.matching.feature_inversion import FeatureInversion
from exhume.attacks.gradients.matching.geiping import BatchNormMatching, Geiping
from exhume.attacks.gradients.matching.generative_prior import GenerativePrior
from exhume.attacks.gradients.matching.liu import LiuMatching

__all__ = [
    "DLG",
    "IDLG",
    "BatchNormMatching",
    "FeatureInversion",
    "Geiping",
    "GenerativePrior",
    "LiuMatching",
]
