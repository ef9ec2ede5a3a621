"""Multisecant Gauss–Newton: solve θ(x) = θ* for many targets, with one simulation per iteration.

A pursuit is a search for one target. Each has a linear model of the training map around its best
point, and keeps its past points: their differences from the best one are secants of the true map. A
step explains as much of the residual as it can by the secants, and the rest by the model. Far from
the solution, the residual in units of the record decides (by the model), and the model is computed
again at every better point. Near the solution, the plain residual decides, and the model is kept
while it helps. Pursuits do not depend on each other.

Each target's residual alone decides which labels and starts are tried, and for how long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from exhume.attacks.informed.trajectory.many_targets.first_layer_inverse import (
    Heard,
    Preconditioner,
    SignalSimulator,
)
from exhume.attacks.informed.trajectory.many_targets.label_probes import Probes, evidence
from exhume.attacks.informed.trajectory.many_targets.linearisation import LocalMap, LocalMaps
from exhume.protocol.arrays import FloatArray

_MEMORY = 40
_RIDGE_FAR, _RIDGE_NEAR = 1e-3, 1e-7
_NEAR = 0.1
"""Below this relative residual, the plain residual decides."""
_DAMPING_NEAR = 0.01
_PATIENCE_FAR, _PATIENCE_NEAR = 8, 14
"""A pursuit ends after this many simulations without progress."""
_STALE = 3
"""After this many failures in a row, the model is computed again if the best point has moved."""
_LOOSE = 4.0
"""A pursuit that no longer moves counts as solved within this factor of its tolerance."""


@dataclass(frozen=True, eq=False)
class ValueBox:
    """The box of an input: ``low``, ``high`` (inputs,), equal where the input is known.

    Close to an answer, a search may leave the box by ``slack``: the edge would only hinder it.
    """

    low: FloatArray
    high: FloatArray
    slack: float = 0.0

    def clip(self, x: FloatArray, *, close: bool = False) -> FloatArray:
        """Return the nearest point inside."""
        slack = np.where(self.low < self.high, self.slack, 0.0) if close else 0.0
        return np.clip(x, self.low - slack, self.high + slack)


@dataclass(eq=False)
class _Point:
    """A simulated record, its residual (P,), and the residual in the model's coordinates."""

    x: FloatArray
    residual: FloatArray
    coordinates: FloatArray = field(default_factory=lambda: np.empty(0))


@dataclass(eq=False)
class Pursuit:
    """One target under one label from one start; ``x`` (inputs,) is simulated next."""

    observed: FloatArray
    response: float
    box: ValueBox
    x: FloatArray
    reach: float
    """The longest step."""
    tolerance: float
    """Relative residual at which the answer and the truth are not distinguishable."""
    radius: float = 0.0
    damping: float = 0.1
    simulations: int = 0
    residual: float = np.inf
    """Of the best point, relative to the observed difference."""
    level: float = np.inf
    """The squared length of the best point's coordinates."""
    idle: int = 0
    """Simulations since the residual last fell by a twentieth, or the level by a tenth."""
    failures: int = 0
    heard: Heard | None = None
    local: LocalMap | None = None
    points: list[_Point] = field(default_factory=list)
    _best: _Point | None = None
    _modelled: _Point | None = None
    _was_near: bool = False

    def __post_init__(self) -> None:
        self.radius = self.reach
        self.x = self.box.clip(self.x)

    @property
    def solved(self) -> bool:
        """Whether the residual is as small as the release allows."""
        return self.residual <= (self.tolerance if self.idle < 3 else _LOOSE * self.tolerance)

    @property
    def done(self) -> bool:
        """Whether more simulations are useless."""
        return self.solved or self.idle >= (_PATIENCE_NEAR if self.near else _PATIENCE_FAR)

    @property
    def near(self) -> bool:
        """Whether the plain residual decides."""
        return self.residual < _NEAR

    @property
    def best(self) -> FloatArray:
        """Return the best point (inputs,)."""
        return np.empty(0) if self._best is None else self._best.x

    @property
    def gap(self) -> FloatArray:
        """Return the residual of the best point, (P,)."""
        assert self._best is not None
        return self._best.residual

    def absorb(self, difference: FloatArray, heard: Heard) -> None:
        """Add the result of the simulation at ``x``."""
        self.simulations += 1
        self.idle += 1
        if not np.isfinite(difference).all():
            self._fail(0.25)
            return
        point = _Point(self.x, self.observed - difference)
        size = float(np.linalg.norm(self.observed)) or 1e-300
        residual = float(np.linalg.norm(point.residual)) / size
        level = np.inf
        if self.local is not None:
            point.coordinates = self.local.coordinates(point.residual[None])[0]
            level = float(point.coordinates @ point.coordinates)
        self.points = [*self.points[1 - 2 * _MEMORY :], point]
        closer = residual < self.residual
        if not self.near:
            closer = level < self.level or residual < 0.5 * self.residual
        if not closer:
            self._fail(0.5)
            return
        if residual < 0.95 * self.residual or (not self.near and level < 0.9 * self.level):
            self.idle = 0
        self.damping = max(self.damping * (0.1 if level < 0.3 * self.level else 0.5), 1e-6)
        self.radius = self.reach
        self.failures = 0
        self.residual, self.level = residual, level
        self._best, self.heard = point, heard

    def _fail(self, factor: float) -> None:
        self.failures += 1
        self.damping = min(10.0 * self.damping, 1e6)
        if self.local is None:
            self.radius *= factor
        elif self.near:
            self.radius = factor * float(np.linalg.norm(self.x - self.best))

    @property
    def stale(self) -> bool:
        """Whether a model around the best point is wanted."""
        if self._best is None or self._best is self._modelled:
            return False
        if self.local is None or self.near != self._was_near:
            return True
        return self.failures == 0 if not self.near else self.failures >= _STALE

    def model(self, local: LocalMap) -> None:
        """Take a model around the best point, and convert all residuals to it."""
        assert self._best is not None
        if self.near and not self._was_near:
            # Secants from a distant point belong to another part of the map.
            self.points = [self._best]
        self.local, self._modelled, self._was_near = local, self._best, self.near
        seen = local.coordinates(np.array([point.residual for point in self.points]))
        for point, own in zip(self.points, seen, strict=True):
            point.coordinates = own
        self.level = float(self._best.coordinates @ self._best.coordinates)

    def propose(self) -> None:
        """Set the next ``x``: secants, then the model; limit the step by radius and box."""
        if self._best is None or self.local is None:
            # No simulation was finite yet: a record closer to 0 disturbs the training less.
            self.x = self.box.clip(0.5 * self.x)
            return
        step, gap = self._by_secants(self._best)
        step = step + self.local.step(gap, _DAMPING_NEAR if self.near else self.damping)
        length = float(np.linalg.norm(step))
        if length > self.radius:
            step = step * (self.radius / length)
        self.x = self.box.clip(self._best.x + step, close=self.near)

    def _by_secants(self, best: _Point) -> tuple[FloatArray, FloatArray]:
        """Return the step that the secants suggest, and the residual that they leave."""
        far = [point for point in self.points if point is not best]
        none = np.zeros_like(best.x), best.residual
        if not far:
            return none
        steps = np.array([point.x - best.x for point in far])
        length = np.linalg.norm(steps, axis=1)
        keep = np.argsort(length, kind="stable")[:_MEMORY]
        keep = keep[length[keep] > 1e-12 * (1.0 + np.linalg.norm(best.x))]
        if not len(keep):
            return none
        length = length[keep]
        weight = (1.0 / (length * (1.0 + 0.25 * length / length[0])))[:, None]
        gains = np.array([best.coordinates - far[i].coordinates for i in keep]) * weight
        gram = gains @ gains.T
        ridge = _RIDGE_NEAR if self.near else _RIDGE_FAR
        gram[np.diag_indices_from(gram)] += ridge * gram.diagonal().max() + 1e-300
        share = np.linalg.solve(gram, gains @ best.coordinates) * weight[:, 0]
        left = (1.0 - share.sum()) * best.residual
        left = left + share @ np.array([far[i].residual for i in keep])
        return share @ steps[keep], left


def pursue(
    pursuits: Sequence[Pursuit], simulator: SignalSimulator, maps: LocalMaps, *, iterations: int
) -> None:
    """Run every pursuit for some iterations; one iteration's simulations run together."""
    shape = simulator.fixed_set.record_shape
    for _ in range(iterations):
        active = [one for one in pursuits if not one.done]
        if not active:
            return
        asked = np.array([one.x for one in active]).reshape(-1, *shape)
        found = simulator.simulate(asked, np.array([one.response for one in active]))
        for i, one in enumerate(active):
            one.absorb(found.differences[i], found.heard.of(slice(i, i + 1)))
            if one.done:
                one.points.clear()
        active = [one for one in active if not one.done]
        stale = [one for one in active if one.stale]
        if stale:
            heard = Heard.joined([one.heard for one in stale if one.heard is not None])
            x, y = np.array([one.best for one in stale]), [one.response for one in stale]
            for one, local in zip(stale, maps.at(x, y, heard), strict=True):
                one.model(local)
        for one in active:
            one.propose()


_GLIMPSE = 7
"""Iterations after which the labels of a hard target are compared."""
_FINALISTS, _LABELS = 2, 5
_ROUNDS = 4
"""The least number of rounds of a target, even if nothing explains anything."""
HOPELESS = 0.9
"""Relative residual above which an answer explains nothing."""
CERTIFIED = 1e-3
"""Only the true record has been seen to reach a relative residual below this."""


@dataclass(frozen=True, eq=False)
class Goal:
    """One target: what was observed (P,), its box, and its label if known."""

    observed: FloatArray
    box: ValueBox
    tolerance: float
    response: float | None


@dataclass(frozen=True, eq=False)
class Engine:
    """What all targets of one training share."""

    simulator: SignalSimulator
    preconditioner: Preconditioner
    maps: LocalMaps
    probes: Probes
    reach: float

    def pursue(self, pursuits: Sequence[Pursuit], iterations: int) -> None:
        """Run the pursuits that are not solved yet."""
        pursue(pursuits, self.simulator, self.maps, iterations=iterations)


def attempt(engine: Engine, goals: Sequence[Goal], *, iterations: int, retries: int) -> list[Trail]:
    """Search for every target: its most likely label first, then others and other starts."""
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
    """All pursuits of one target."""

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
        """Whether training again with the best answer ends at the release."""
        best = self.best
        near = max(CERTIFIED, 3.0 * self.goal.tolerance)
        return best.solved or best.residual <= near

    @property
    def simulations(self) -> int:
        """Return the number of trainings simulated for this target."""
        return sum(one.simulations for one in self.pursuits)

    def open(self, round_: int) -> bool:
        """Whether another round may help; it does not if no label explained anything."""
        if self.certified:
            return False
        return round_ < _ROUNDS or self.best.residual < HOPELESS

    def set_out(self, label: int, start: int) -> Pursuit:
        """Begin with the label at this rank of evidence, from its start at this rank."""
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
        """Return the number of starts tried for the label at this rank of evidence."""
        return sum(one.response == self.labels[rank] for one in self.pursuits)

    def _by_residual(self) -> list[int]:
        """Return the labels' ranks of evidence, those with the smallest residual first."""
        reached = [
            min((one.residual for one in self.pursuits if one.response == label), default=np.inf)
            for label in self.labels
        ]
        return [int(rank) for rank in np.argsort(reached, kind="stable")]

    def finalists(self, fresh: Sequence[Pursuit]) -> list[Pursuit]:
        """Return the new pursuits that continue."""
        mine = [one for one in fresh if any(one is own for own in self.pursuits)]
        if any(one.solved for one in mine):
            return []
        return sorted(mine, key=lambda one: one.residual)[:_FINALISTS]
