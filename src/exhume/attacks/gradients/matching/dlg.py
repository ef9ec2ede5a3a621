"""Deep leakage from gradients (Zhu et al. 2019; Zhao et al. 2020): match a gradient by L-BFGS."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exhume.attacks.gradients.matching.attack import (
    FoundImages,
    MatchingAttack,
    at_least_one,
)
from exhume.protocol.arrays import Array
from exhume.protocol.attack import ThreatModel

if TYPE_CHECKING:
    from exhume.attacks.gradients.matching.loop import MatchedRuns, MatchingProblem
    from exhume.attacks.gradients.matching.problem import MatchableRelease


@dataclass(frozen=True)
class DLG(MatchingAttack):
    """Deep leakage from gradients: squared distance, L-BFGS, soft labels (Zhu et al. 2019).

    Uses strong Wolfe line searches in double precision, ``steps`` rounds of 20 iterations, from up
    to ``starts`` starts until one explains the release. Then up to ``jacobians`` Gauss–Newton steps
    follow, for batches of at most 4,096 numbers. If the network is smooth and its release longer
    than the batch, they converge to the release's own rounding. Known labels are used.
    """

    name: ClassVar[str] = "dlg"
    made_for: ClassVar[ThreatModel | None] = ThreatModel.GRADIENT
    steps: int = 15
    starts: int = 3
    jacobians: int = 6
    adaptive: bool = True

    def __post_init__(self) -> None:
        at_least_one(self, "steps", "starts")

    def _given(self, labels: Array | None, reading: MatchableRelease) -> Array | None:
        return reading.knowledge.labels

    def _match(
        self, reading: MatchableRelease, labels: Array | None, rng: np.random.Generator
    ) -> FoundImages:
        from exhume.attacks.gradients.matching.loop import StepBudget, match, merged
        from exhume.attacks.gradients.matching.objectives import SquaredL2
        from exhume.attacks.gradients.matching.optimisers import LBFGS
        from exhume.attacks.gradients.matching.priors import Pixels
        from exhume.attacks.gradients.matching.problem import problem_of

        given = self._given(labels, reading)
        problem = problem_of(reading, SquaredL2(), labels=given, precision="float64")
        rough = problem_of(reading, SquaredL2(), labels=given, precision="float32")
        enough = 5e-7 if reading.step.precision == "float32" else 1e-12
        # Below the known noise level, only noise is left to fit.
        enough = max(enough, math.sqrt(problem.released.noise))
        budget = StepBudget(steps=self.steps, enough=enough**2, patience=2)
        matches: list[MatchedRuns] = []
        taken = 0
        for _ in range(self.starts):
            one = match(problem, Pixels(clamped=False), LBFGS(), budget, rng)
            one, jacobians = _polished(problem, rough, one, self.jacobians, rng, enough=enough)
            matches, taken = [*matches, one], taken + jacobians
            if one.best.distance < max(1e-9, enough**2):
                break
        return FoundImages(problem, merged(matches), taken)


@dataclass(frozen=True)
class IDLG(DLG):
    """DLG with labels first inferred from the last layer (Zhao et al. 2020)."""

    name: ClassVar[str] = "idlg"

    def _given(self, labels: Array | None, reading: MatchableRelease) -> Array | None:
        return labels


def _polished(
    problem: MatchingProblem,
    rough: MatchingProblem,
    found: MatchedRuns,
    jacobians: int,
    rng: np.random.Generator,
    *,
    enough: float,
) -> tuple[MatchedRuns, int]:
    """Return the match with its best run taken to the end by Gauss–Newton."""
    from exhume.attacks.gradients.matching.gauss_newton import polish

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
