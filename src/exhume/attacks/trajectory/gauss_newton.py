"""Gauss–Newton through an unrolled training, on a natural level function."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from exhume.attacks.trajectory.bidiagonal import Triplets, bidiagonalise
from exhume.attacks.trajectory.unrolled import Path, Unrolled


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How long to try.

    At most ``iterations`` Jacobians, each by ``directions`` pairs of products (``far_directions``
    while the relative residual is above ``near``); ``corrections`` more steps with the same one.
    Ends at a relative residual of ``tolerance``, or after ``patience`` iterations in a row that
    bring less than a tenth of the residual off. ``quantile`` sets the level's τ; 1 makes it all but
    the plain residual, for fits that leave one.
    """

    iterations: int = 20
    directions: int = 24
    far_directions: int = 12
    near: float = 0.25
    corrections: int = 4
    tolerance: float = 5e-5
    quantile: float = 0.3
    patience: int = 3


@dataclass(frozen=True, eq=False)
class Problem:
    """Find the record whose training ends in ``observed`` (m,).

    ``exact`` gives residuals, ``rough`` (of lower precision, or the same) Jacobians: a step need
    not be precise, what it leaves must be. ``free`` (R,) says which entries are unknown, ``low``
    and ``high`` (R,) are the box. Residuals are relative to ``scale``, the length of the observed
    difference to the training without the record.
    """

    exact: Unrolled
    rough: Unrolled
    observed: Tensor
    free: Tensor
    low: Tensor
    high: Tensor
    scale: float

    def residual(self, record: Tensor) -> Tensor:
        """Return observed − simulated, (m,)."""
        return self.observed - self.exact.observed(record)

    def relative(self, residual: Tensor) -> float:
        """Return the residual's length in units of the observed difference."""
        length = float(residual.norm()) / self.scale
        return length if math.isfinite(length) else math.inf

    def inside(self, record: Tensor) -> Tensor:
        """Return the record moved into the box."""
        return torch.minimum(torch.maximum(record, self.low), self.high)

    def path(self, record: Tensor) -> Path:
        """Return the rough path, for products."""
        return self.rough.path(record.to(self.rough.initial.dtype))

    def moving(self, path: Path, record: Tensor, residual: Tensor) -> Tensor:
        """Return 1 where an entry may move: it is unknown, and not held at the box."""
        slope = path.vjp(residual.to(path.theta.dtype)).to(record.dtype)
        held = ((record <= self.low) & (slope < 0)) | ((record >= self.high) & (slope > 0))
        return (self.free & ~held).to(record.dtype)


@dataclass(frozen=True, eq=False)
class Solution:
    """Where an attempt ended: ``record`` (R,), its ``residual`` (m,) and relative residual.

    ``history`` holds the relative residual after each iteration, ``triplets`` the last Jacobian's
    leading singular triplets.
    """

    record: Tensor
    residual: Tensor
    relative: float
    history: tuple[float, ...]
    triplets: Triplets | None = None

    def error(self) -> float:
        """Return an estimate of the error's root mean square, in units of the record.

        What the residual would move the record by in the directions that were resolved, and the
        rest of it at the weakest of them.
        """
        if self.triplets is None or not math.isfinite(self.relative):
            return math.inf
        level = Level.of(self.triplets)
        return math.sqrt(level.at(self.residual) / len(self.record))


@dataclass(frozen=True, eq=False)
class Level:
    """The residual in units of the record: Σ(uᵢ·r)²/(sᵢ²+τ²) + ‖rest‖²/τ².

    A natural level function (Deuflhard 2004, section 3.3): singular values span orders of
    magnitude, and the plain length of the residual is ruled by one stiff direction.
    """

    triplets: Triplets
    floor: float

    @staticmethod
    def of(triplets: Triplets, quantile: float = 0.3) -> Level:
        """Return the level whose τ is a quantile of the singular values."""
        return Level(triplets, float(torch.quantile(triplets.values, quantile)))

    def at(self, residual: Tensor) -> float:
        """Return the level of a residual (m,)."""
        parts = self.triplets.left.T @ residual
        rest = (residual @ residual - parts @ parts).clamp_min(0.0)
        known = (parts * parts / (self.triplets.values**2 + self.floor**2)).sum()
        value = float(known + rest / self.floor**2)
        return value if math.isfinite(value) else math.inf

    def step(self, residual: Tensor, damping: float) -> Tensor:
        """Return the damped step Σ sᵢ/(sᵢ² + damping·τ²)(uᵢ·r)vᵢ, (R,)."""
        values = self.triplets.values
        shares = values / (values**2 + damping * self.floor**2)
        return self.triplets.right @ (shares * (self.triplets.left.T @ residual))


@dataclass(frozen=True, eq=False)
class _Trial:
    record: Tensor
    residual: Tensor
    level: float
    damping: float


def gauss_newton(problem: Problem, start: Tensor, budget: Budget) -> Solution:
    """Solve from ``start`` (R,); the answer is the best record met, whether it solves or not."""
    record = problem.inside(start)
    residual = problem.residual(record)
    relative = problem.relative(residual)
    best = here = Solution(record, residual, relative, (relative,))
    slow, damping = 0, 0.1
    for _ in range(budget.iterations):
        if best.relative <= budget.tolerance or slow >= budget.patience:
            break
        path = problem.path(here.record)
        moving = problem.moving(path, here.record, here.residual)
        directions = budget.directions if here.relative < budget.near else budget.far_directions
        triplets = bidiagonalise(path, here.residual, moving, steps=directions)
        trial = None
        if triplets is not None:
            level = Level.of(triplets, budget.quantile)
            trial = _descend(problem, level, here, damping)
        if triplets is None or trial is None:
            return replace(
                best, history=(*here.history, here.relative), triplets=best.triplets or triplets
            )
        damping = trial.damping
        trial = _correct(problem, level, trial, budget.corrections)
        here = _arrive(problem, trial, here, triplets)
        slow = slow + 1 if here.relative > 0.9 * best.relative else 0
        best = here if here.relative < best.relative else replace(best, history=here.history)
    return best


def _descend(problem: Problem, level: Level, here: Solution, damping: float) -> _Trial | None:
    """Walk the ladder of dampings, a factor 10 apart, from the last good one to the best."""
    start = level.at(here.residual)
    best = _try(problem, level, here, damping)
    for factor in (0.1, 10.0):
        moved = False
        while 1e-6 < best.damping < 1e3:
            trial = _try(problem, level, here, best.damping * factor)
            if trial.level >= best.level and math.isfinite(best.level):
                break
            best, moved = trial, True
        if moved:
            break
    while best.level >= start and best.damping < 1e8:
        # Nothing helped yet: steps so short that only the stiffest directions still move.
        best = _try(problem, level, here, 100.0 * best.damping)
    return best if best.level < start else None


def _try(problem: Problem, level: Level, here: Solution, damping: float) -> _Trial:
    record = problem.inside(here.record + level.step(here.residual, damping))
    residual = problem.residual(record)
    return _Trial(record, residual, level.at(residual), damping)


def _correct(problem: Problem, level: Level, trial: _Trial, corrections: int) -> _Trial:
    """Take further steps with the same Jacobian while each still helps a lot."""
    for _ in range(corrections):
        record = problem.inside(trial.record + level.step(trial.residual, max(trial.damping, 0.1)))
        residual = problem.residual(record)
        value = level.at(residual)
        if value >= trial.level:
            break
        much = value < 0.5 * trial.level
        trial = _Trial(record, residual, value, trial.damping)
        if not much:
            break
    return trial


def _arrive(problem: Problem, trial: _Trial, here: Solution, triplets: Triplets) -> Solution:
    relative = problem.relative(trial.residual)
    return Solution(trial.record, trial.residual, relative, (*here.history, relative), triplets)
