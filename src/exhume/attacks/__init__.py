"""Attacks: one file (or folder) a method."""

from exhume.attacks.analytic import Cocktail, FirstLayer, Imprint, Sparsity
from exhume.attacks.base import Attack
from exhume.attacks.baseline import Oblivious
from exhume.attacks.bilevel import Bilevel
from exhume.attacks.conditional import ConditionalGuess
from exhume.attacks.features import Features
from exhume.attacks.glm import GLM
from exhume.attacks.kkt import KKT, RowSpace
from exhume.attacks.known_initialisation import ChangeSparsity, KnownInitialisation
from exhume.attacks.matching import (
    DLG,
    IDLG,
    BatchNormMatching,
    FeatureInversion,
    Geiping,
    GenerativePrior,
    LiuMatching,
)
from exhume.attacks.portfolio import Portfolio
from exhume.attacks.reconstructor import Reconstructor
from exhume.attacks.ridge import Ridge
from exhume.attacks.scaler import ScalerMoments
from exhume.attacks.trajectory import TrajectoryInversion

__all__ = [
    "DLG",
    "GLM",
    "IDLG",
    "KKT",
    "Attack",
    "BatchNormMatching",
    "Bilevel",
    "ChangeSparsity",
    "Cocktail",
    "ConditionalGuess",
    "FeatureInversion",
    "Features",
    "FirstLayer",
    "Geiping",
    "GenerativePrior",
    "Imprint",
    "KnownInitialisation",
    "LiuMatching",
    "Oblivious",
    "Portfolio",
    "Reconstructor",
    "Ridge",
    "RowSpace",
    "ScalerMoments",
    "Sparsity",
    "TrajectoryInversion",
]
