"""Gradient matching over the images that a generator can produce."""

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
from exhume.protocol.attack import SHADOW_TARGETS, Lacking, ThreatModel

if TYPE_CHECKING:
    from exhume.attacks.gradients.matching.problem import MatchableRelease


@dataclass(frozen=True)
class GenerativePrior(MatchingAttack):
    """Searches the images of a generator trained on the shadow targets (Jeon et al. 2021).

    First the codes are optimised, then the codes and the generator's parameters. ``code`` and
    ``width`` are the generator's sizes, ``training_steps`` its training.
    """

    name: ClassVar[str] = "generative-prior"
    made_for: ClassVar[ThreatModel | None] = ThreatModel.GRADIENT
    steps: int = 600
    restarts: int = 1
    total_variation: float | None = 1e-3
    batch_norm: float = 1.0
    training_steps: int = 600
    code: int = 96
    width: int = 48
    continuation: bool = True
    adaptive: bool = True

    def __post_init__(self) -> None:
        at_least_one(self, "steps", "restarts", "training_steps")

    def _objection(self, reading: MatchableRelease) -> str | None:
        shadows = reading.knowledge.shadow_targets
        if shadows is None or len(shadows) < 2:
            return Lacking("trains a generator on images like the target's", SHADOW_TARGETS)
        return no_image(reading)

    def _match(
        self, reading: MatchableRelease, labels: Array | None, rng: np.random.Generator
    ) -> FoundImages:
        from exhume.attacks.gradients.matching.loop import StepBudget, descend
        from exhume.attacks.gradients.matching.objectives import LayerCosine
        from exhume.attacks.gradients.matching.optimisers import CosineAdam
        from exhume.attacks.gradients.matching.priors import Drawn, Generative
        from exhume.attacks.gradients.matching.problem import problem_of
        from exhume.models.generator import Generator, train_generator

        problem = problem_of(reading, LayerCosine(), labels=labels, precision="float32")
        problem = replace(problem, batch_norm=self.batch_norm)
        generator = Generator(reading.knowledge.record_shape, self.code, self.width)
        images = _standard_images(reading)
        trained = train_generator(generator, images, steps=self.training_steps, rng=rng)
        first = Generative(generator, trained).start(problem.frame, rng)
        assert isinstance(first, Drawn)
        budget = StepBudget(steps=max(1, self.steps // 4))
        easy = replace(problem, total_variation=self.total_variation or 0.0)
        descend(easy, first, CosineAdam(5e-2), budget, rng, continuation=continuation_of(self))
        tuned = Generative(generator, trained, codes=first.code.detach(), tuned=True)
        return matched(self, problem, tuned, CosineAdam(3e-3), self.total_variation, rng)


def _standard_images(reading: MatchableRelease) -> Array:
    shadows = reading.knowledge.shadow_targets
    assert shadows is not None
    low, high = reading.knowledge.value_range or (0.0, 1.0)
    return np.clip((shadows.x - low) / (high - low), 0.0, 1.0)
