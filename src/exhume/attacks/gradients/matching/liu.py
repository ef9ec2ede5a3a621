"""The attack of Liu et al.: reweighted layers, an image prior, and the features of a head."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exhume.attacks.gradients.matching.attack import (
    FoundImages,
    MatchingAttack,
    at_least_one,
    continuation_of,
    matched,
    no_image,
)
from exhume.protocol.arrays import Array
from exhume.protocol.attack import ThreatModel

if TYPE_CHECKING:
    from exhume.attacks.gradients.matching.head_features import HeadFeatures
    from exhume.attacks.gradients.matching.loop import MatchingProblem
    from exhume.attacks.gradients.matching.optimisers import Optimiser
    from exhume.attacks.gradients.matching.priors import ImagePrior
    from exhume.attacks.gradients.matching.problem import MatchableRelease


@dataclass(frozen=True)
class LiuMatching(MatchingAttack):
    """Liu et al. 2024, section 4.2: reweighted layers, deep image prior, feature matching.

    Each part can be switched off, for an ablation. Features are those that ``gradients.features``
    recovers from a wide head's gradient, or the substitute from a linear head's gradient. Weights
    that are None are chosen without the truth (``term_weights.chosen_weights``). ``batch_norm``
    applies if statistics are known, ``feature`` if the head reveals features.
    """

    name: ClassVar[str] = "liu"
    made_for: ClassVar[ThreatModel | None] = ThreatModel.GRADIENT
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

    def _objection(self, reading: MatchableRelease) -> str | None:
        return no_image(reading) if self.deep_image_prior else None

    def _match(
        self, reading: MatchableRelease, labels: Array | None, rng: np.random.Generator
    ) -> FoundImages:
        from exhume.attacks.gradients.matching.head_features import head_features
        from exhume.attacks.gradients.matching.objectives import Cosine, LayerCosine
        from exhume.attacks.gradients.matching.optimisers import CosineAdam, SignedAdam
        from exhume.attacks.gradients.matching.priors import DeepImagePrior, Pixels
        from exhume.attacks.gradients.matching.problem import problem_of
        from exhume.attacks.gradients.matching.term_weights import TermWeights, chosen_weights

        features = head_features(reading, labels, rng) if self.feature_matching else None
        if features is not None and features.labels is not None:
            labels = features.labels
        distance = LayerCosine() if self.reweighting else Cosine()
        problem = problem_of(reading, distance, labels=labels, precision="float32")
        problem = problem if features is None else _with_features(problem, features)
        prior: ImagePrior = DeepImagePrior() if self.deep_image_prior else Pixels()
        optimiser: Optimiser = CosineAdam(self.learning_rate)
        if not self.deep_image_prior:
            optimiser = SignedAdam()
        given = TermWeights(self.total_variation, self.batch_norm, self.feature)
        weights = chosen_weights(
            problem, prior, optimiser, self.steps, rng, continuation_of(self), given=given
        )
        problem = weights.put_into(problem)
        found = matched(self, problem, prior, optimiser, problem.total_variation, rng)
        return replace(found, features=None if features is None else features.route.name.lower())


def _with_features(problem: MatchingProblem, found: HeadFeatures) -> MatchingProblem:
    from exhume.attacks.gradients.matching.head_features import Route
    from exhume.training.simulation import watch_features

    watch_features(problem.simulation, found.layer)
    features = problem.frame.tensor(found.features)
    return replace(problem, features=features, spanned=found.route is Route.SPAN)
