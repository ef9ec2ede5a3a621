"""Liu et al.'s own attack: reweighted layers, an image prior, and the features of a head."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exhume.arrays import Array
from exhume.attacks.matching.base import Found, MatchingAttack
from exhume.attacks.matching.running import at_least_one, continuation_of, matched, no_image

if TYPE_CHECKING:
    from exhume.attacks.matching.core import Problem
    from exhume.attacks.matching.head import HeadFeatures
    from exhume.attacks.matching.optimisers import Optimiser
    from exhume.attacks.matching.priors import Prior
    from exhume.attacks.matching.reading import Reading


@dataclass(frozen=True)
class LiuMatching(MatchingAttack):
    """Liu et al. 2024, section 4.2: reweighted layers, deep image prior, feature matching.

    Each part can be switched off, for an ablation. Features are those that ``attacks.features``
    recovers from a wide head's gradient, or what a linear head's gradient tells in their place.
    Weights that are None are chosen without the truth (``choice.chosen_weights``); ``batch_norm``
    counts where statistics are known, ``feature`` where the head gives features away.
    """

    name: ClassVar[str] = "liu"
    steps: int = 1000
    restarts: int = 1
    total_variation: float | None = None
    batch_norm: float | None = None
    feature: float | None = None
    learning_rate: float = 7e-3
    reweighting: bool = True
    deep_image_prior: bool = True
    feature_matching: bool = True
    continuation: bool = True
    adaptive: bool = True

    def __post_init__(self) -> None:
        at_least_one(self, "steps", "restarts")

    def _objection(self, reading: Reading) -> str | None:
        return no_image(reading) if self.deep_image_prior else None

    def _solve(self, reading: Reading, labels: Array | None, rng: np.random.Generator) -> Found:
        from exhume.attacks.matching.choice import Weights, chosen_weights
        from exhume.attacks.matching.head import head_features
        from exhume.attacks.matching.objectives import Cosine, LayerCosine
        from exhume.attacks.matching.optimisers import CosineAdam, SignedAdam
        from exhume.attacks.matching.priors import DeepImagePrior, Pixels
        from exhume.attacks.matching.reading import problem_of

        features = head_features(reading, labels, rng) if self.feature_matching else None
        if features is not None and features.labels is not None:
            labels = features.labels
        distance = LayerCosine() if self.reweighting else Cosine()
        problem = problem_of(reading, distance, labels=labels, precision="float32")
        problem = problem if features is None else _with_features(problem, features)
        prior: Prior = DeepImagePrior() if self.deep_image_prior else Pixels()
        optimiser: Optimiser = CosineAdam(self.learning_rate)
        if not self.deep_image_prior:
            optimiser = SignedAdam()
        given = Weights(self.total_variation, self.batch_norm, self.feature)
        weights = chosen_weights(
            problem, prior, optimiser, self.steps, rng, continuation_of(self), given=given
        )
        problem = weights.put_into(problem)
        found = matched(self, problem, prior, optimiser, problem.total_variation, rng)
        return replace(found, features=None if features is None else features.route.name.lower())


def _with_features(problem: Problem, found: HeadFeatures) -> Problem:
    from exhume.attacks.matching.head import Route
    from exhume.attacks.matching.simulation import watch_features

    watch_features(problem.simulation, found.layer)
    features = problem.frame.tensor(found.features)
    return replace(problem, features=features, spanned=found.route is Route.SPAN)
