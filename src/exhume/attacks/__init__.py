"""Attacks: one file (or folder) per method. What is exported here, audits know by its name."""

from exhume.attacks.blind import Oblivious
from exhume.attacks.conditional_guess import ConditionalGuess
from exhume.attacks.estimators import Refit, StoredRecords, TreeCells
from exhume.attacks.gradients.analytic import Cocktail, FirstLayer, Imprint, Sparsity
from exhume.attacks.gradients.features import Features
from exhume.attacks.gradients.matching import (
    DLG,
    IDLG,
    BatchNormMatching,
    FeatureInversion,
    Geiping,
    GenerativePrior,
    LiuMatching,
)
from exhume.attacks.gradients.portfolio import Portfolio
from exhume.attacks.gradients.tables import TabLeak
from exhume.attacks.informed.learned import Reconstructor
from exhume.attacks.informed.learned.ridge import Ridge
from exhume.attacks.informed.trajectory import TrajectoryInversion
from exhume.attacks.informed.transcript import LastIterate, PriorAware
from exhume.attacks.linear import GLM
from exhume.attacks.linear.scaler import ScalerMoments
from exhume.attacks.weights_only import KKT, ChangeSparsity, KnownInitialisation, RowSpace
from exhume.attacks.weights_only.bilevel import Bilevel
from exhume.protocol.attack import Attack

# In the order in which audits run and list them, blind guesses last.
__all__ = [  # noqa: RUF022
    "Attack",
    "GLM",
    "ScalerMoments",
    "TrajectoryInversion",
    "Ridge",
    "Reconstructor",
    "PriorAware",
    "LastIterate",
    "StoredRecords",
    "TreeCells",
    "Refit",
    "TabLeak",
    "FirstLayer",
    "Sparsity",
    "Cocktail",
    "Imprint",
    "Features",
    "DLG",
    "IDLG",
    "Geiping",
    "BatchNormMatching",
    "LiuMatching",
    "GenerativePrior",
    "FeatureInversion",
    "Portfolio",
    "RowSpace",
    "KKT",
    "Bilevel",
    "KnownInitialisation",
    "ChangeSparsity",
    "Oblivious",
    "ConditionalGuess",
]
