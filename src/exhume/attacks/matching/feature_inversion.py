"""A cocktail party of features, and each feature turned back into an image."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exhume.arrays import Array
from exhume.attacks.matching.base import Found, MatchingAttack
from exhume.attacks.matching.running import at_least_one, matched
from exhume.training.gradient import GradientStep

if TYPE_CHECKING:
    from exhume.attacks.matching.first_connected import BatchFeatures
    from exhume.attacks.matching.reading import Reading


@dataclass(frozen=True)
class FeatureInversion(MatchingAttack):
    """Unmixes the features of a batch, then inverts them (Kariyappa et al. 2023, section 5).

    The gradient of the first fully connected layer behind convolutions gives each record's
    features; then images are found that have them, each on its own, by signed Adam with total
    variation from the best of ``restarts`` starts. No gradient of a gradient is taken, so a step
    is cheap. The images' own gradient is simulated once, at the end: it says how the attack ended.
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

    def _objection(self, reading: Reading) -> str | None:
        from exhume.attacks.matching.first_connected import first_connected

        if not isinstance(reading.mechanism, GradientStep):
            return "features are read off one batch's gradient, not off local steps or a mean"
        if reading.step.classes is None:
            return "features are told apart by classes, and this is a regression"
        if reading.count < reading.total:
            return "records of the batch are known: features are read off the whole batch"
        layer = first_connected(reading.step.network)
        if isinstance(layer, str):
            return layer
        if layer.weight not in reading.arrays:
            return f"the gradient of {layer.weight!r} was not released"
        return None

    def _solve(
        self, reading: Reading, labels: Array | None, rng: np.random.Generator
    ) -> Found | str:
        from exhume.attacks.matching.first_connected import batch_features

        features = batch_features(reading, labels, rng)
        return features if isinstance(features, str) else self._inverted(reading, features, rng)

    def _inverted(
        self, reading: Reading, features: BatchFeatures, rng: np.random.Generator
    ) -> Found:
        from exhume.attacks.matching.inversion import Inversion, pieced_together
        from exhume.attacks.matching.objectives import SquaredL2
        from exhume.attacks.matching.optimisers import SignedAdam
        from exhume.attacks.matching.priors import Pixels
        from exhume.attacks.matching.reading import problem_of
        from exhume.attacks.matching.simulation import watch_features

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
