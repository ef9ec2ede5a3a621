"""Which labels and starts are tried, and for how long: decided by each target's residual alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from exhume.arrays import FloatArray
from exhume.attacks.trajectory.labels import Probes, evidence
from exhume.attacks.trajectory.multisecant import Box, Pursuit, pursue
from exhume.attacks.trajectory.preconditioner import Preconditioner, SignalSimulator
from exhume.attacks.trajectory.response import Response

_GLIMPSE = 7
"""Iterations after which the labels of a hard target are compared."""
_FINALISTS, _LABELS = 2, 5
_ROUNDS = 4
"""Rounds that a target gets even where nothing explained anything."""
HOPELESS = 0.9
"""Relative residual above which an answer explains nothing."""
CERTIFIED = 1e-3
"""Relative residual below which only the true record has been seen."""


@dataclass(frozen=True, eq=False)
class Goal:
    """One target: what was observed (P,), where it may lie, and its label where known."""

    observed: FloatArray
    box: Box
    tolerance: float
    response: float | None


@dataclass(frozen=True, eq=False)
class Engine:
    """What all targets of one training share."""

    simulator: SignalSimulator
    preconditioner: Preconditioner
    response: Response
    probes: Probes
    reach: float

    def pursue(self, pursuits: Sequence[Pursuit], iterations: int) -> None:
        """Run pursuits, those that are solved already excepted."""
        pursue(pursuits, self.simulator, self.response, iterations=iterations)


def attempt(engine: Engine, goals: Sequence[Goal], *, iterations: int, retries: int) -> list[Trail]:
    """Go after every target: its likeliest label first, then others and other starts."""
    trails = [Trail(engine, goal) for goal in goals]
    for trail in trails:
        trail.set_out(0, 0)
    engine.pursue([one for trail in trails for one in trail.pursuits], iterations)
    for round_ in range(retries):
        open_ = [trail for trail in trails if trail.open(round_)]
        fresh = [one for trail in open_ for one in trail.retry(round_)]
        engine.pursue(fresh, _GLIMPSE)
        chosen = [one for trail in open_ for one in trail.finalists(fresh)]
        engine.pursue(chosen, iterations)
    return trails


class Trail:
    """Every pursuit of one target."""

    def __init__(self, engine: Engine, goal: Goal) -> None:
        self.engine, self.goal = engine, goal
        self.pursuits: list[Pursuit] = []
        nominal, probes = engine.simulator.nominal, engine.probes
        if goal.response is None:
            found = evidence(nominal, goal.observed, probes)
            self.labels = [int(label) for label in np.argsort(-found, kind="stable")]
        else:
            self.labels = [int(goal.response)]

    @property
    def best(self) -> Pursuit:
        """Return the pursuit with the smallest residual."""
        return min(self.pursuits, key=lambda one: (not one.solved, one.residual))

    @property
    def certified(self) -> bool:
        """Whether repeating the training with the best answer ends at the release."""
        best = self.best
        near = max(CERTIFIED, 3.0 * self.goal.tolerance)
        return best.solved or best.residual <= near

    @property
    def simulations(self) -> int:
        """Return how many trainings were simulated for this target."""
        return sum(one.simulations for one in self.pursuits)

    def open(self, round_: int) -> bool:
        """Whether another round may help: no longer where no label explained anything."""
        if self.certified:
            return False
        return round_ < _ROUNDS or self.best.residual < HOPELESS

    def set_out(self, label: int, start: int) -> Pursuit:
        """Begin with the label of a rank of evidence, from its start of a rank."""
        response = self.labels[label]
        starts = self.engine.probes.starts(self.goal.observed, response)
        one = Pursuit(
            self.goal.observed,
            response,
            self.goal.box,
            starts[start % len(starts)].copy(),
            self.engine.reach,
            self.goal.tolerance,
        )
        self.pursuits.append(one)
        return one

    def retry(self, round_: int) -> list[Pursuit]:
        """Return new pursuits: the first labels from other starts; in the end every label."""
        count = len(self.labels)
        if round_ == 0:
            plan = [(0, 1), (0, 2), (min(1, count - 1), 0 if count > 1 else 3)]
        elif round_ == 1:
            plan = [(label, 0) for label in range(2, count)] or [(0, 4), (0, 5)]
        else:
            ranks = self._by_residual()[:_LABELS] if count > 1 else [0, 0, 0]
            tried = {rank: self._tried(rank) for rank in ranks}
            plan = []
            for rank in ranks:
                plan.append((rank, tried[rank]))
                tried[rank] += 1
        return [self.set_out(label, start) for label, start in plan]

    def _tried(self, rank: int) -> int:
        """Return how many starts the label of a rank of evidence has had."""
        return sum(one.response == self.labels[rank] for one in self.pursuits)

    def _by_residual(self) -> list[int]:
        """Return the labels' ranks of evidence, those that came closest first."""
        reached = [
            min((one.residual for one in self.pursuits if one.response == label), default=np.inf)
            for label in self.labels
        ]
        return [int(rank) for rank in np.argsort(reached, kind="stable")]

    def finalists(self, fresh: Sequence[Pursuit]) -> list[Pursuit]:
        """Return which of the new pursuits go on."""
        mine = [one for one in fresh if any(one is own for own in self.pursuits)]
        if any(one.solved for one in mine):
            return []
        return sorted(mine, key=lambda one: one.residual)[:_FINALISTS]
