"""One full Jacobian, then secants: cheap steps if records are small.

A step costs one training instead of dozens of products through it. Broyden's update corrects the
Jacobian along the steps taken (Broyden 1965).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from exhume.attacks.informed.trajectory.one_target.gauss_newton import (
    Level,
    ResidualProblem,
    Solution,
    Triplets,
    descend,
)

LARGEST = 512
"""Records with more unknowns use Krylov spaces: the Jacobian needs one product per unknown."""
_STEPS = 40
_SLOW = 3
"""A round ends after this many steps in a row that each gain less than a tenth."""


def follow_secants(
    problem: ResidualProblem, start: Solution, *, jacobians: int, tolerance: float
) -> Solution:
    """Continue from ``start`` with a limited number of Jacobians; return the best record."""
    best = start
    for _ in range(jacobians):
        before = best.relative
        best = _round(problem, best, tolerance)
        if best.relative <= tolerance or best.relative > 0.8 * before:
            break
    return best


def _round(problem: ResidualProblem, start: Solution, tolerance: float) -> Solution:
    matrix = _jacobian(problem, start.record)
    best = here = replace(start, history=(*start.history, start.relative))
    slow, damping = 0, 0.1
    for _ in range(_STEPS):
        triplets = _decomposed(matrix * _moving(problem, here, matrix))
        trial = None if triplets is None else descend(problem, Level.of(triplets), here, damping)
        if triplets is None or trial is None:
            break
        moved, relative = trial.record - here.record, problem.relative(trial.residual)
        missed = here.residual - trial.residual - matrix @ moved
        matrix += torch.outer(missed, moved / (moved @ moved).clamp_min(1e-300))
        history = (*best.history[:-1], relative)
        here = Solution(trial.record, trial.residual, relative, history, triplets)
        slow = slow + 1 if relative > 0.9 * best.relative else 0
        best = here if relative < best.relative else best
        damping = trial.damping
        if best.relative <= tolerance or slow >= _SLOW:
            break
    return best


def _jacobian(problem: ResidualProblem, record: Tensor) -> Tensor:
    """Return ∂observed/∂record (m, R); columns of known entries are 0."""
    path = problem.path(record)
    columns = []
    for i, free in enumerate(problem.free.tolist()):
        unit = torch.zeros_like(path.record)
        unit[i] = 1.0
        columns.append(path.jvp(unit).to(record.dtype) if free else None)
    blank = torch.zeros_like(problem.observed)
    return torch.stack([blank if one is None else one for one in columns], dim=1)


def _moving(problem: ResidualProblem, here: Solution, matrix: Tensor) -> Tensor:
    """Return 1 for entries that may move: unknown, and not held at the edge of the box."""
    slope = matrix.T @ here.residual
    low, high = here.record <= problem.low, here.record >= problem.high
    held = (low & (slope < 0)) | (high & (slope > 0))
    return (problem.free & ~held).to(matrix.dtype)


def _decomposed(matrix: Tensor) -> Triplets | None:
    if not bool(torch.isfinite(matrix).all()):
        return None
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    kept = values > 1e-9 * values[0]
    return Triplets(left[:, kept], values[kept], right[kept].T) if bool(kept.any()) else None
