"""Multisecant Gauss–Newton: solve θ(x) = θ* with one simulation an iteration, many at once.

Each pursuit of one target keeps its past points; their differences to the best one are secants of
the training map. A step answers the residual by the secants as far as they reach, and by the
preconditioner's inverse for the rest. No pursuit looks at another's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from exhume.arrays import FloatArray
from exhume.attacks.trajectory.preconditioner import Preconditioner, SignalSimulator

_MEMORY = 40
_RIDGE = 1e-4
_SCALED = 12
"""Iterations at most in which the length of the difference is left out of account."""
_NEAR = 0.12
"""Relative residual from which on the length counts."""
_LOST, _PATIENCE = 4, 8
"""Simulations without progress after which a pursuit looks around, and after which it ends."""
_LOOKS = 4
_STRIDE = 0.01
"""How often it may look around, and how far, in units of the longest step."""
_LOOSE = 4.0
"""A pursuit that no longer moves is solved within this factor of its tolerance."""


@dataclass(frozen=True, eq=False)
class Box:
    """Where an input may lie: ``low``, ``high`` (inputs,), equal where it is known."""

    low: FloatArray
    high: FloatArray

    def clip(self, x: FloatArray) -> FloatArray:
        """Return the nearest point inside."""
        return np.clip(x, self.low, self.high)


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
    simulations: int = 0
    residual: float = np.inf
    """Of the best point, relative to the observed difference."""
    scale: float = 1.0
    scaled: bool = True
    idle: int = 0
    """Simulations since the residual last fell by a twentieth."""
    looks: int = 0
    asked: FloatArray = field(default_factory=lambda: np.empty(0))
    best: FloatArray = field(default_factory=lambda: np.empty(0))
    reached: FloatArray = field(default_factory=lambda: np.empty(0))
    signals: Tensor | None = None
    points: list[tuple[FloatArray, FloatArray]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.radius = self.reach
        self.x = self.box.clip(self.x)

    @property
    def solved(self) -> bool:
        """Whether the residual is as small as the release allows."""
        if self.scaled:
            return False
        return self.residual <= (self.tolerance if self.idle < 3 else _LOOSE * self.tolerance)

    @property
    def done(self) -> bool:
        """Whether more simulations are of no use."""
        return self.solved or self.idle >= _PATIENCE

    @property
    def gap(self) -> FloatArray:
        """Return what is left to explain at the best point, (P,)."""
        return np.asarray(self.observed - self.scale * self.reached)

    def absorb(self, difference: FloatArray, signals: Tensor) -> None:
        """Take in what was simulated at ``x``."""
        self.simulations += 1
        self.idle += 1
        if not np.isfinite(difference).all():
            self.radius *= 0.25
            return
        self.points = [*self.points[1 - 2 * _MEMORY :], (self.x, difference)]
        scale = self._fitted(difference) if self.scaled else 1.0
        residual = self._relative(difference, scale)
        if residual < self.residual:
            if residual < 0.95 * self.residual:
                self.idle = 0
                self.radius = min(2.0 * self.radius, self.reach)
            self.residual, self.scale = residual, scale
            self.best, self.reached, self.signals = self.x, difference, signals
        else:
            self.radius *= 0.5
        if self.scaled and (self.residual < _NEAR or self.simulations >= _SCALED):
            self._count_length()

    @property
    def lost(self) -> bool:
        """Whether the secants mislead, and the neighbourhood must be looked at afresh."""
        return self.idle >= _LOST and self.looks < _LOOKS and self.signals is not None

    def questions(self, directions: FloatArray) -> FloatArray:
        """Return the points (m, inputs) to simulate next."""
        if not self.lost:
            return self.x[None]
        free = self.box.low < self.box.high
        self.asked = self.best + _STRIDE * self.reach * directions * free
        return self.asked

    def look_around(self, differences: FloatArray) -> None:
        """Take the answers to the neighbouring points as the only secants from here on."""
        finite = np.isfinite(differences).all(axis=1)
        self.points = list(zip(self.asked[finite], differences[finite], strict=True))
        self.simulations += len(differences)
        self.looks += 1
        self.idle = 0
        self.radius = max(self.radius, 0.25 * self.reach)

    def secants(self) -> tuple[FloatArray, FloatArray]:
        """Return past steps (m, inputs) from the best point and what they brought (m, P)."""
        far = [p for p in self.points if p[0] is not self.best]
        if not far:
            return np.zeros((0, len(self.x))), np.zeros((0, len(self.observed)))
        steps = np.array([x - self.best for x, _ in far])
        gains = np.array([d - self.reached for _, d in far]) * self.scale
        length = np.linalg.norm(steps, axis=1)
        keep = np.argsort(length, kind="stable")[:_MEMORY]
        keep = keep[length[keep] > 1e-12 * (1.0 + np.linalg.norm(self.best))]
        length = length[keep]
        if not len(keep):
            return steps[:0], gains[:0]
        weight = 1.0 / (length * (1.0 + length / max(self.radius, 1e-12)))
        return steps[keep] * weight[:, None], gains[keep] * weight[:, None]

    def propose(self, step: FloatArray) -> None:
        """Set the next ``x``: the step cut to the radius, inside the box."""
        length = float(np.linalg.norm(step))
        if length > self.radius:
            step = step * (self.radius / length)
        self.x = self.box.clip(self.best + step)

    def _fitted(self, difference: FloatArray) -> float:
        squared = float(difference @ difference)
        return float(np.clip(difference @ self.observed / max(squared, 1e-300), 0.1, 10.0))

    def _relative(self, difference: FloatArray, scale: float) -> float:
        gap = float(np.linalg.norm(self.observed - scale * difference))
        return gap / max(float(np.linalg.norm(self.observed)), 1e-300)

    def _count_length(self) -> None:
        self.scaled, self.scale, self.idle = False, 1.0, 0
        self.residual = self._relative(self.reached, 1.0)


def pursue(
    pursuits: Sequence[Pursuit],
    simulator: SignalSimulator,
    preconditioner: Preconditioner,
    *,
    iterations: int,
) -> None:
    """Run every pursuit for some iterations, all simulations of one iteration together."""
    shape = simulator.fixed_set.record_shape
    for _ in range(iterations):
        active = [one for one in pursuits if not one.done]
        if not active:
            return
        asked = [one.questions(preconditioner.directions) for one in active]
        counts = [len(x) for x in asked]
        responses = np.repeat([one.response for one in active], counts)
        found = simulator.simulate(np.concatenate(asked).reshape(-1, *shape), responses)
        ends = np.cumsum(counts)
        for one, end, count in zip(active, ends, counts, strict=True):
            part = slice(end - count, end)
            if one.lost:
                one.look_around(found.differences[part])
            else:
                one.absorb(found.differences[end - 1], found.signals[end - 1])
            if one.done:
                one.points.clear()
        _propose([one for one in active if not one.done], preconditioner)


def _propose(pursuits: Sequence[Pursuit], preconditioner: Preconditioner) -> None:
    """Set where each pursuit goes next."""
    lost = [one for one in pursuits if one.signals is None]
    for one in lost:
        # Nothing was finite yet: less of a record disturbs the training less.
        one.x = one.box.clip(0.5 * one.x)
    ready = [one for one in pursuits if one.signals is not None]
    if not ready:
        return
    fits = [_fit(one) for one in ready]
    signals = torch.stack([one.signals for one in ready if one.signals is not None])
    answers = preconditioner.steps(np.array([rest for _, rest in fits]), signals)
    for one, (step, _), answer in zip(ready, fits, answers, strict=True):
        one.propose(step + answer)


def _fit(one: Pursuit) -> tuple[FloatArray, FloatArray]:
    """Return the step that the secants suggest, and the residual that they leave."""
    steps, gains = one.secants()
    gap = one.gap
    if not len(steps):
        return np.zeros_like(one.x), gap
    gram = gains @ gains.T
    gram[np.diag_indices_from(gram)] += _RIDGE * gram.diagonal().max() + 1e-300
    share = np.linalg.solve(gram, gains @ gap)
    return share @ steps, gap - share @ gains
