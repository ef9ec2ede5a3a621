"""Multisecant Gauss–Newton: solve θ(x) = θ* with one simulation an iteration, many at once.

Each pursuit of one target has a linear model of the training map around its best point, and keeps
its past points: their differences to the best one are secants of the map itself. A step answers
the residual by the secants as far as they reach, and by the model for the rest. Far from the
solution, what counts is the residual in units of the record, as the model sees it, and the model is
made anew at every better point; near it, the plain residual, and the model stays while it helps. No
pursuit looks at another's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from exhume.arrays import FloatArray
from exhume.attacks.trajectory.preconditioner import Heard, SignalSimulator
from exhume.attacks.trajectory.response import Local, Response

_MEMORY = 40
_RIDGE_FAR, _RIDGE_NEAR = 1e-3, 1e-7
_NEAR = 0.1
"""Relative residual from which on the plain residual decides."""
_DAMPING_NEAR = 0.01
_PATIENCE_FAR, _PATIENCE_NEAR = 8, 14
"""Simulations without progress after which a pursuit ends."""
_STALE = 3
"""Failures in a row after which the model is made anew, if the best point has moved since."""
_LOOSE = 4.0
"""A pursuit that no longer moves is solved within this factor of its tolerance."""


@dataclass(frozen=True, eq=False)
class Box:
    """Where an input may lie: ``low``, ``high`` (inputs,), equal where it is known.

    Close to an answer an edge is only in the way, and may be passed by ``slack``.
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
    box: Box
    x: FloatArray
    reach: float
    """The longest step."""
    tolerance: float
    """Relative residual at which the answer can't be told from the truth."""
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
    local: Local | None = None
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
        """Whether more simulations are of no use."""
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
        """Return what is left to explain at the best point, (P,)."""
        assert self._best is not None
        return self._best.residual

    def absorb(self, difference: FloatArray, heard: Heard) -> None:
        """Take in what was simulated at ``x``."""
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

    def model(self, local: Local) -> None:
        """Take a model around the best point, and see everything by it."""
        assert self._best is not None
        if self.near and not self._was_near:
            # Secants from afar are those of another map.
            self.points = [self._best]
        self.local, self._modelled, self._was_near = local, self._best, self.near
        seen = local.coordinates(np.array([point.residual for point in self.points]))
        for point, own in zip(self.points, seen, strict=True):
            point.coordinates = own
        self.level = float(self._best.coordinates @ self._best.coordinates)

    def propose(self) -> None:
        """Set the next ``x``: secants, then the model; the step cut to the radius, in the box."""
        if self._best is None or self.local is None:
            # Nothing was finite yet: less of a record disturbs the training less.
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
    pursuits: Sequence[Pursuit], simulator: SignalSimulator, response: Response, *, iterations: int
) -> None:
    """Run every pursuit for some iterations, all simulations of one iteration together."""
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
            for one, local in zip(stale, response.at(x, y, heard), strict=True):
                one.model(local)
        for one in active:
            one.propose()
