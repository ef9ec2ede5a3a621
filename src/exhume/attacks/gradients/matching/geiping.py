"""The attacks on gradients of Geiping et al. 2020 and Yin et al. 2021, as settings of the loop."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exhume.attacks.gradients.matching.attack import (
    FoundImages,
    MatchingAttack,
    at_least_one,
    matched,
)
from exhume.protocol.arrays import Array
from exhume.protocol.attack import ThreatModel

if TYPE_CHECKING:
    from exhume.attacks.gradients.matching.problem import MatchableRelease


@dataclass(frozen=True)
class Geiping(MatchingAttack):
    """Inverting gradients: cosine distance, total variation, signed Adam (Geiping et al. 2020).

    With ``total_variation=None`` the weight is chosen by how well layers held out of a short run
    are predicted. ``continuation`` starts from a smoothed network, whose gradients show in advance
    where ReLUs switch, and ends with the exact one. Without it this is the published attack.
    """

    name: ClassVar[str] = "geiping"
    made_for: ClassVar[ThreatModel | None] = ThreatModel.GRADIENT
    steps: int = 600
    restarts: int = 1
    total_variation: float | None = 2e-2
    learning_rate: float = 0.1
    continuation: bool = True
    adaptive: bool = True

    def __post_init__(self) -> None:
        at_least_one(self, "steps", "restarts")

    def _match(
        self, reading: MatchableRelease, labels: Array | None, rng: np.random.Generator
    ) -> FoundImages:
        from exhume.attacks.gradients.matching.objectives import Cosine
        from exhume.attacks.gradients.matching.optimisers import SignedAdam
        from exhume.attacks.gradients.matching.priors import Pixels
        from exhume.attacks.gradients.matching.problem import problem_of

        problem = problem_of(reading, Cosine(), labels=labels, precision="float32")
        optimiser = SignedAdam(self.learning_rate)
        return matched(self, problem, Pixels(), optimiser, self.total_variation, rng)


@dataclass(frozen=True)
class BatchNormMatching(MatchingAttack):
    """Geiping's attack with the batch's normalisation statistics (Yin et al. 2021).

    They come from ``Knowledge.batch_norm``, or else are the running ones of the model.
    """

    name: ClassVar[str] = "batch-norm"
    made_for: ClassVar[ThreatModel | None] = ThreatModel.GRADIENT
    steps: int = 600
    restarts: int = 1
    total_variation: float | None = 1e-2
    batch_norm: float = 1.0
    learning_rate: float = 0.1
    continuation: bool = True
    adaptive: bool = True

    def __post_init__(self) -> None:
        at_least_one(self, "steps", "restarts")

    def _objection(self, reading: MatchableRelease) -> str | None:
        from exhume.attacks.gradients.matching.problem import known_statistics

        if known_statistics(reading) is None:
            return "no batch-norm statistics are known"
        return None

    def _match(
        self, reading: MatchableRelease, labels: Array | None, rng: np.random.Generator
    ) -> FoundImages:
        from exhume.attacks.gradients.matching.objectives import LayerCosine
        from exhume.attacks.gradients.matching.optimisers import SignedAdam
        from exhume.attacks.gradients.matching.priors import Pixels
        from exhume.attacks.gradients.matching.problem import problem_of

        problem = problem_of(reading, LayerCosine(), labels=labels, precision="float32")
        problem = replace(problem, batch_norm=self.batch_norm)
        optimiser = SignedAdam(self.learning_rate)
        return matched(self, problem, Pixels(), optimiser, self.total_variation, rng)
