"""The attacks of the literature, each a setting of the one loop."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exhume.arrays import Array
from exhume.attacks.matching.base import Found, MatchingAttack
from exhume.attacks.matching.running import at_least_one, continuation_of, matched, no_image

if TYPE_CHECKING:
    from exhume.attacks.matching.core import Match, Problem
    from exhume.attacks.matching.reading import Reading


@dataclass(frozen=True)
class DLG(MatchingAttack):
    """Deep leakage from gradients: squared distance, L-BFGS, soft labels (Zhu et al. 2019).

    Strong Wolfe line searches in double precision, ``steps`` rounds of 20 iterations, from up to
    ``starts`` starts until one explains the release. Then up to ``jacobians`` Gauss–Newton steps,
    for batches of at most 4,096 numbers: where the network is smooth and its release longer than
    the batch, they end at the release's own rounding. Known labels are used.
    """

    name: ClassVar[str] = "dlg"
    steps: int = 15
    starts: int = 3
    jacobians: int = 6
    adaptive: bool = True

    def __post_init__(self) -> None:
        at_least_one(self, "steps", "starts")

    def _given(self, labels: Array | None, reading: Reading) -> Array | None:
        return reading.knowledge.labels

    def _solve(self, reading: Reading, labels: Array | None, rng: np.random.Generator) -> Found:
        from exhume.attacks.matching.core import Budget, match, merged
        from exhume.attacks.matching.objectives import SquaredL2
        from exhume.attacks.matching.optimisers import LBFGS
        from exhume.attacks.matching.priors import Pixels
        from exhume.attacks.matching.reading import problem_of

        given = self._given(labels, reading)
        problem = problem_of(reading, SquaredL2(), labels=given, precision="float64")
        rough = problem_of(reading, SquaredL2(), labels=given, precision="float32")
        enough = 5e-7 if reading.step.precision == "float32" else 1e-12
        # Below the noise that is known to be there nothing is left but noise to fit.
        enough = max(enough, math.sqrt(problem.released.noise))
        budget = Budget(steps=self.steps, enough=enough**2, patience=2)
        matches: list[Match] = []
        taken = 0
        for _ in range(self.starts):
            one = match(problem, Pixels(clamped=False), LBFGS(), budget, rng)
            one, jacobians = _polished(problem, rough, one, self.jacobians, rng, enough=enough)
            matches, taken = [*matches, one], taken + jacobians
            if one.best.distance < max(1e-9, enough**2):
                break
        return Found(problem, merged(matches), taken)


@dataclass(frozen=True)
class IDLG(DLG):
    """DLG with labels read off the last layer first (Zhao et al. 2020)."""

    name: ClassVar[str] = "idlg"

    def _given(self, labels: Array | None, reading: Reading) -> Array | None:
        return labels


@dataclass(frozen=True)
class Geiping(MatchingAttack):
    """Inverting gradients: cosine distance, total variation, signed Adam (Geiping et al. 2020).

    ``total_variation`` None chooses its weight by how well layers held out of a short run are
    predicted. ``continuation`` starts from a smoothed network, whose gradients foresee where ReLUs
    switch, and ends with the exact one; without it this is the published attack.
    """

    name: ClassVar[str] = "geiping"
    steps: int = 600
    restarts: int = 1
    total_variation: float | None = 2e-2
    learning_rate: float = 0.1
    continuation: bool = True
    adaptive: bool = True

    def __post_init__(self) -> None:
        at_least_one(self, "steps", "restarts")

    def _solve(self, reading: Reading, labels: Array | None, rng: np.random.Generator) -> Found:
        from exhume.attacks.matching.objectives import Cosine
        from exhume.attacks.matching.optimisers import SignedAdam
        from exhume.attacks.matching.priors import Pixels
        from exhume.attacks.matching.reading import problem_of

        problem = problem_of(reading, Cosine(), labels=labels, precision="float32")
        optimiser = SignedAdam(self.learning_rate)
        return matched(self, problem, Pixels(), optimiser, self.total_variation, rng)


@dataclass(frozen=True)
class BatchNormMatching(MatchingAttack):
    """Geiping's attack with the batch's normalisation statistics (Yin et al. 2021).

    They are those of ``Knowledge.batch_norm``, else the running ones that come with the model.
    """

    name: ClassVar[str] = "batch-norm"
    steps: int = 600
    restarts: int = 1
    total_variation: float | None = 1e-2
    batch_norm: float = 1.0
    learning_rate: float = 0.1
    continuation: bool = True
    adaptive: bool = True

    def __post_init__(self) -> None:
        at_least_one(self, "steps", "restarts")

    def _objection(self, reading: Reading) -> str | None:
        from exhume.attacks.matching.reading import known_statistics

        if known_statistics(reading) is None:
            return "no batch-norm statistics are known"
        return None

    def _solve(self, reading: Reading, labels: Array | None, rng: np.random.Generator) -> Found:
        from exhume.attacks.matching.objectives import LayerCosine
        from exhume.attacks.matching.optimisers import SignedAdam
        from exhume.attacks.matching.priors import Pixels
        from exhume.attacks.matching.reading import problem_of

        problem = problem_of(reading, LayerCosine(), labels=labels, precision="float32")
        problem = replace(problem, batch_norm=self.batch_norm)
        optimiser = SignedAdam(self.learning_rate)
        return matched(self, problem, Pixels(), optimiser, self.total_variation, rng)


@dataclass(frozen=True)
class GenerativePrior(MatchingAttack):
    """Search among the images of a generator trained on the shadow targets (Jeon et al. 2021).

    First the codes move, then the generator's parameters with them. ``code`` and ``width`` are the
    generator's sizes, ``training_steps`` its training.
    """

    name: ClassVar[str] = "generative-prior"
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

    def _objection(self, reading: Reading) -> str | None:
        shadows = reading.knowledge.shadow_targets
        if shadows is None or len(shadows) < 2:
            return "needs images like the target's to train a generator on (shadow targets)"
        return no_image(reading)

    def _solve(self, reading: Reading, labels: Array | None, rng: np.random.Generator) -> Found:
        from exhume.attacks.matching.core import Budget, descend
        from exhume.attacks.matching.objectives import LayerCosine
        from exhume.attacks.matching.optimisers import CosineAdam
        from exhume.attacks.matching.priors import Drawn, Generative
        from exhume.attacks.matching.reading import problem_of
        from exhume.models.generator import Generator, train_generator

        problem = problem_of(reading, LayerCosine(), labels=labels, precision="float32")
        problem = replace(problem, batch_norm=self.batch_norm)
        generator = Generator(reading.knowledge.record_shape, self.code, self.width)
        images = _standard_images(reading)
        trained = train_generator(generator, images, steps=self.training_steps, rng=rng)
        first = Generative(generator, trained).start(problem.frame, rng)
        assert isinstance(first, Drawn)
        budget = Budget(steps=max(1, self.steps // 4))
        easy = replace(problem, total_variation=self.total_variation or 0.0)
        descend(easy, first, CosineAdam(5e-2), budget, rng, continuation=continuation_of(self))
        tuned = Generative(generator, trained, codes=first.code.detach(), tuned=True)
        return matched(self, problem, tuned, CosineAdam(3e-3), self.total_variation, rng)


def _polished(
    problem: Problem,
    rough: Problem,
    found: Match,
    jacobians: int,
    rng: np.random.Generator,
    *,
    enough: float,
) -> tuple[Match, int]:
    """Return the match with its best run taken to the end by Gauss–Newton."""
    from exhume.attacks.matching.gauss_newton import polish

    best = found.best
    for posed in (problem, rough):
        posed.simulation.nuisances.put(best.nuisances)
    labels = best.labels
    if labels.is_floating_point() and labels.ndim == 2:
        # Soft labels were a means: a record has one class.
        labels = labels.argmax(dim=1)
    box, images = problem.frame.box, best.images
    if box is not None:
        images = problem.completed(images.clamp(*box))
    end = polish(problem, rough, images, labels, rng, iterations=jacobians, enough=enough)
    square = end.residual**2
    if not end.jacobians or not square < best.distance:
        return found, end.jacobians
    better = replace(best, images=end.images, labels=labels, loss=square, distance=square)
    return replace(found, best=better, runs=(better, *found.runs[1:])), end.jacobians


def _standard_images(reading: Reading) -> Array:
    shadows = reading.knowledge.shadow_targets
    assert shadows is not None
    low, high = reading.knowledge.value_range or (0.0, 1.0)
    return np.clip((shadows.x - low) / (high - low), 0.0, 1.0)
