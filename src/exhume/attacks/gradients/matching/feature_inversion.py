"""The cocktail party attack on features, and the inversion of each feature to an image."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exhume.attacks.gradients.matching.attack import (
    FoundImages,
    MatchingAttack,
    at_least_one,
    matched,
)
from exhume.protocol.arrays import Array
from exhume.training.gradient import GradientStep

if TYPE_CHECKING:
    from exhume.attacks.gradients.matching.first_connected import BatchFeatures
    from exhume.attacks.gradients.matching.problem import MatchableRelease


@dataclass(frozen=True)
class FeatureInversion(MatchingAttack):
    """Separates the features of a batch, then inverts them (Kariyappa et al. 2023, section 5).

    The gradient of the first fully connected layer after convolutions gives each record's features.
    Then images with these features are found, each separately, by signed Adam with total variation
    from the best of ``restarts`` starts. A step is cheap, because it needs no second derivatives.
    The gradient of the images is simulated once, at the end, to decide how the attack ended.
    """

    name: ClassVar[str] = "feature-inversion"
    steps: int = 600
    restarts: int = 4
    total_variation: float = 2e-2
    learning_rate: float = 0.1
    continuation: bool = True
    adaptive: bool = True

    def __post_init__(self) -> None:
        at_least_one(self, "steps", "restarts")

    def _objection(self, reading: MatchableRelease) -> str | None:
        from exhume.attacks.gradients.matching.first_connected import first_connected

        if not isinstance(reading.mechanism, GradientStep):
            return "features are read from one batch's gradient, not from local steps or a mean"
        if reading.step.classes is None:
            return "features are separated by classes, but this is a regression"
        if reading.count < reading.total:
            return "records of the batch are known, but features are read from the whole batch"
        layer = first_connected(reading.step.network)
        if isinstance(layer, str):
            return layer
        if layer.weight not in reading.arrays:
            return f"the gradient of {layer.weight!r} was not released"
        return None

    def _match(
        self, reading: MatchableRelease, labels: Array | None, rng: np.random.Generator
    ) -> FoundImages | str:
        from exhume.attacks.gradients.matching.first_connected import batch_features

        features = batch_features(reading, labels, rng)
        return features if isinstance(features, str) else self._inverted(reading, features, rng)

    def _inverted(
        self, reading: MatchableRelease, features: BatchFeatures, rng: np.random.Generator
    ) -> FoundImages:
        from exhume.attacks.gradients.matching.first_connected import Inversion, pieced_together
        from exhume.attacks.gradients.matching.objectives import SquaredL2
        from exhume.attacks.gradients.matching.optimisers import SignedAdam
        from exhume.attacks.gradients.matching.priors import Pixels
        from exhume.attacks.gradients.matching.problem import problem_of
        from exhume.training.simulation import watch_features

        posed = problem_of(reading, SquaredL2(), labels=features.labels, precision="float32")
        watch_features(posed.simulation, features.layer)
        parts = {field.name: getattr(posed, field.name) for field in fields(posed)}
        own = {"features": posed.frame.tensor(features.features), "feature": 1.0}
        problem = Inversion(**{**parts, **own})
        optimiser = SignedAdam(self.learning_rate)
        found = matched(self, problem, Pixels(), optimiser, self.total_variation, rng)
        assert isinstance(found.problem, Inversion)
        whole = pieced_together(found.problem, found.match)
        return replace(
            found, match=whole, features=features.route, feature_residual=features.residual
        )
