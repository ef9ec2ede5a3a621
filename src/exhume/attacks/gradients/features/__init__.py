"""Recovery of features, the inputs of a wide two-layer head, from the head's gradient."""

from exhume.attacks.gradients.features.attack import Features
from exhume.attacks.gradients.features.head import Head, ResponseKind, planted_head
from exhume.attacks.gradients.features.recover import RecoveredFeatures, recover_features
from exhume.attacks.gradients.features.search import FeatureSearchSettings
from exhume.metrics.features import Matched, matched_cosines, projection_residual

__all__ = [
    "FeatureSearchSettings",
    "Features",
    "Head",
    "Matched",
    "RecoveredFeatures",
    "ResponseKind",
    "matched_cosines",
    "planted_head",
    "projection_residual",
    "recover_features",
]
