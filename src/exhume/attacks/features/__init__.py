"""Features, the inputs of a wide two-layer head, from the head's gradient."""

from exhume.attacks.features.attack import Features
from exhume.attacks.features.head import Head, Response, planted_head
from exhume.attacks.features.recover import RecoveredFeatures, recover_features
from exhume.attacks.features.search import Settings
from exhume.attacks.features.similarity import (
    Matched,
    greedy_cosines,
    matched_cosines,
    projection_residual,
)

__all__ = [
    "Features",
    "Head",
    "Matched",
    "RecoveredFeatures",
    "Response",
    "Settings",
    "greedy_cosines",
    "matched_cosines",
    "planted_head",
    "projection_residual",
    "recover_features",
]
