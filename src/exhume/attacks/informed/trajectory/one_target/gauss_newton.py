"""Leading singular triplets of a path's Jacobian: Golub–Kahan bidiagonalisation from a residual.

Gauss–Newton through an unrolled training, on a natural level function.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from exhume.attacks.informed.trajectory.one_target.unrolled import Path, Unrolled


@dataclass(frozen=True, eq=False)
class Triplets:
    """J ≈ Σ sᵢ uᵢ vᵢᵀ: ``left`` (m, k), ``values`` (k,) largest first, ``right`` (R, k)."""

    left: Tensor
    values: Tensor
    right: Tensor


def bidiagonalise(path: Path, residual: Tensor, moving: Tensor, *, steps: int) -> Triplets | None:
    """Return ``steps`` triplets of J · diag(moving), from the Krylov space that starts at r.

    That space contains the best approximations to the least-squares solution (Paige and Saunders
    1982). Every damping costs nothing more once the small matrix is decomposed. Fully
    reorthogonalised; the products are in the path's precision, the result in the residual's.
    Returns None if J is 0.
    """
    basis = _Basis(path, residual, moving, steps)
    while basis.grow():
        pass
    return basis.triplets()


class _Basis:
    """J V = U B with B lower bidiagonal: one column of U and V per step."""

    def __init__(self, path: Path, residual: Tensor, moving: Tensor, steps: int) -> None:
        self.path, self.moving, self.steps = path, moving, min(steps, int(moving.sum()))
        self.dtype = residual.dtype
        self.left = residual.new_empty(len(residual), self.steps + 1)
        self.right = residual.new_empty(len(moving), self.steps)
        self.matrix = residual.new_zeros(self.steps + 1, self.steps)
        length = residual.norm()
        self.lefts, self.rights = 0, 0
        if bool(length > 0) and self.steps:
            self.left[:, 0], self.lefts = residual / length, 1

    def grow(self) -> bool:
        """Add a column to V and one to U; return whether more can follow."""
        k = self.rights
        if k == self.steps or self.lefts <= k:
            return False
        back = self.path.vjp(self.left[:, k].to(self.path.theta.dtype)).to(self.dtype)
        v, length = _orthogonalised(back * self.moving, self.right[:, :k])
        if not self._counts(length):
            return False
        self.right[:, k], self.matrix[k, k], self.rights = v / length, length, k + 1
        there = self.path.jvp(self.right[:, k].to(self.path.theta.dtype)).to(self.dtype)
        u, length = _orthogonalised(there, self.left[:, : k + 1])
        if not bool(torch.isfinite(length)):
            self.rights = k
            return False
        # The recurrence keeps only one of these entries; measured, they are right in any precision.
        self.matrix[: k + 1, k] = self.left[:, : k + 1].T @ there
        if not self._counts(length):
            return False
        self.left[:, k + 1], self.matrix[k + 1, k], self.lefts = u / length, length, k + 2
        return True

    def triplets(self) -> Triplets | None:
        """Return the singular triplets of U B Vᵀ."""
        if not self.rights:
            return None
        small = self.matrix[: self.lefts, : self.rights]
        p, values, q = torch.linalg.svd(small, full_matrices=False)
        left, right = self.left[:, : self.lefts] @ p, self.right[:, : self.rights] @ q.T
        kept = values > 1e-9 * values[0]
        return Triplets(left[:, kept], values[kept], right[:, kept])

    def _counts(self, length: Tensor) -> bool:
        largest = self.matrix[0, 0] if self.rights else length
        return bool(torch.isfinite(length)) and bool(length > 1e-7 * largest) and bool(length > 0)


def _orthogonalised(vector: Tensor, basis: Tensor) -> tuple[Tensor, Tensor]:
    for _ in range(2):
        vector = vector - basis @ (basis.T @ vector)
    return vector, vector.norm()


@dataclass(frozen=True, kw_only=True)
class IterationBudget:
    """The effort of the search.

    At most ``iterations`` Jacobians, each from ``directions`` pairs of products (``far_directions``
    while the relative residual is above ``near``), then ``corrections`` more steps with the same
    one. The search ends at a relative residual of ``tolerance``, or after ``patience`` iterations
    in a row that each reduce the residual by less than a tenth. ``quantile`` sets the level's τ. A
    value of 1 makes the level almost the plain residual, for fits that leave a residual.
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
class ResidualProblem:
    """Find the record whose training ends in ``observed`` (m,).

    ``exact`` gives residuals, ``rough`` (of lower precision, or the same) gives Jacobians: a step
    may be inaccurate, but its residual may not. ``free`` (R,) marks the unknown entries, ``low``
    and ``high`` (R,) are the box. Residuals are relative to ``scale``, the length of the observed
    difference from the training without the record.
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
        """Return the record projected onto the box."""
        return torch.minimum(torch.maximum(record, self.low), self.high)

    def path(self, record: Tensor) -> Path:
        """Return the rough path, for products."""
        return self.rough.path(record.to(self.rough.initial.dtype))

    def moving(self, path: Path, record: Tensor, residual: Tensor) -> Tensor:
        """Return 1 for entries that may move: unknown, and not held at the edge of the box."""
        slope = path.vjp(residual.to(path.theta.dtype)).to(record.dtype)
        held = ((record <= self.low) & (slope < 0)) | ((record >= self.high) & (slope > 0))
        return (self.free & ~held).to(record.dtype)


@dataclass(frozen=True, eq=False)
class Solution:
    """The end of an attempt: ``record`` (R,), its ``residual`` (m,) and relative residual.

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

        It has two parts: the residual's effect on the record in the resolved directions, and the
        rest of the residual at the smallest of their singular values.
        """
        if self.triplets is None or not math.isfinite(self.relative):
            return math.inf
        level = Level.of(self.triplets)
        return math.sqrt(level.at(self.residual) / len(self.record))


@dataclass(frozen=True, eq=False)
class Level:
    """The residual in units of the record: Σ(uᵢ·r)²/(sᵢ²+τ²) + ‖rest‖²/τ².

    A natural level function (Deuflhard 2004, section 3.3). Singular values span orders of
    magnitude, and one stiff direction dominates the plain length of the residual.
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


def gauss_newton(problem: ResidualProblem, start: Tensor, budget: IterationBudget) -> Solution:
    """Solve from ``start`` (R,); the answer is the best record found, solved or not."""
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
            trial = descend(problem, level, here, damping)
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


def descend(
    problem: ResidualProblem, level: Level, here: Solution, damping: float
) -> _Trial | None:
    """Try dampings a factor 10 apart, from the last good one to the best."""
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
        # Nothing helped yet: the steps are so short that only the stiffest directions move.
        best = _try(problem, level, here, 100.0 * best.damping)
    return best if best.level < start else None


def _try(problem: ResidualProblem, level: Level, here: Solution, damping: float) -> _Trial:
    record = problem.inside(here.record + level.step(here.residual, damping))
    residual = problem.residual(record)
    return _Trial(record, residual, level.at(residual), damping)


def _correct(problem: ResidualProblem, level: Level, trial: _Trial, corrections: int) -> _Trial:
    """Take further steps with the same Jacobian while each reduces the residual a lot."""
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


def _arrive(
    problem: ResidualProblem, trial: _Trial, here: Solution, triplets: Triplets
) -> Solution:
    relative = problem.relative(trial.residual)
    return Solution(trial.record, trial.residual, relative, (*here.history, relative), triplets)
