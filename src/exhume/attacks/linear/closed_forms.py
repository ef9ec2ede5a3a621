"""Closed forms: the solutions of a generalised linear model's optimality condition.

If D₋ is known, the gradient of its objective at the released parameters is g = x̃ cᵀ. Here x̃ is
the target's row (1, x), and c = w·(y − μ(⟨x̃,θ⟩)) is the residual of its response. Balle et al.
2022, Theorems 1 and 8; the formula for y is corrected here (y = μ + c/w).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from exhume.protocol.arrays import Array, FloatArray
from exhume.training.families import Family

_SMALLEST_SCORE, _LARGEST_SCORE = -700.0, 700.0


@dataclass(frozen=True, eq=False)
class ClosedForm:
    """A target that explains the gradient: features ``x`` (d,), residual ``c`` (outputs,)."""

    x: FloatArray
    c: FloatArray


def with_intercept(gradient: FloatArray) -> ClosedForm:
    """Solve g = (1, x) cᵀ by its first row; ``gradient`` is (1 + d, outputs), c not all zero.

    >>> solution = with_intercept(np.outer([1.0, 3.0, 5.0], [2.0]))
    >>> solution.x, solution.c
    (array([3., 5.]), array([2.]))
    """
    c = gradient[0]
    return ClosedForm(gradient[1:] @ c / (c @ c), c)


def refined_residual(
    family: Family, theta: FloatArray, gradient: FloatArray, response: float, weight: float
) -> ClosedForm:
    """Fit g ≈ (1, x)·c by least squares for one output, with a known response; g₁ is not 0.

    For a given c, the best x is explicit. The only unknown left is c. Gauss–Newton finds it from
    two residuals: the error of the intercept's equation and that of the score's. The cost is O(d).
    """
    slope, along = theta[1:, 0], float(gradient[1:, 0] @ theta[1:, 0])
    size = float(slope @ slope)
    c = float(gradient[0, 0])
    if size == 0.0:
        c = weight * (response - float(family.mean(theta[:1, 0])[0]))
        return (
            with_intercept(gradient) if c == 0.0 else ClosedForm(gradient[1:, 0] / c, np.array([c]))
        )
    score = float(theta[0, 0]) + along / c
    for _ in range(50):
        unexplained = weight * (response - float(family.mean(np.array([score]))[0]))
        d_unexplained = -weight * float(family.slope(np.array([score]))[0])
        offset = score - float(theta[0, 0])
        residual = np.array(
            [unexplained - gradient[0, 0], (unexplained * offset - along) / np.sqrt(size)]
        )
        jacobian = np.array([d_unexplained, (d_unexplained * offset + unexplained) / np.sqrt(size)])
        curvature = float(jacobian @ jacobian)
        if curvature == 0.0:
            break
        step = float(jacobian @ residual) / curvature
        score -= step
        if abs(step) <= 1e-15 * (1.0 + abs(score)):
            break
    c = weight * (response - float(family.mean(np.array([score]))[0]))
    if c == 0.0 or not np.isfinite(c):
        return with_intercept(gradient)
    x = gradient[1:, 0] / c
    x = x + slope * (score - float(theta[0, 0]) - float(slope @ x)) / size
    return ClosedForm(x, np.array([c]))


def without_intercept(
    family: Family, theta: FloatArray, gradient: FloatArray, response: float, weight: float
) -> list[ClosedForm]:
    """Solve g = x·c with a known response and no intercept, for one output: up to two solutions.

    With s = ⟨x,θ⟩ the condition is s·w·(y − μ(s)) = ⟨g,θ⟩. Its left side has one turning point.
    Theorem 8 is the linear case.
    """
    along = float(gradient[:, 0] @ theta[:, 0]) / weight

    def reached(scores: FloatArray) -> FloatArray:
        return np.asarray(scores * (response - family.mean(scores)) - along)

    scores = _linear_scores(response, along) if family is Family.LINEAR else _roots(reached, family)
    solutions = []
    for score in scores:
        c = weight * (response - float(family.mean(np.array([score]))[0]))
        if c != 0.0:
            solutions.append(ClosedForm(gradient[:, 0] / c, np.array([c])))
    return solutions


def without_intercept_multinomial(
    theta: FloatArray, gradient: FloatArray, response: FloatArray, weight: float
) -> tuple[ClosedForm, float]:
    """Solve G = x cᵀ for several outputs: the SVD gives x's direction, a search its length.

    Returns the solution and its relative misfit. The misfit distinguishes the right label from a
    wrong one.
    """
    left, values, right = np.linalg.svd(gradient, full_matrices=False)
    direction, expected = left[:, 0], values[0] * right[0]
    slopes = direction @ theta

    def misfit(lengths: FloatArray) -> FloatArray:
        c = weight * (response - Family.MULTINOMIAL.mean(lengths[:, None] * slopes))
        return np.asarray(np.sum((lengths[:, None] * c - expected) ** 2, axis=1))

    grid = _possible_lengths(slopes, float(values[0]) / weight)
    starts = grid[_valleys(misfit(grid))]
    found = [_polished_length(float(s), slopes, expected, response, weight) for s in starts]
    # Several minima may be nearly equal, but only one is zero: polishing shows which.
    lengths = np.append(starts, found)
    length = float(lengths[np.argmin(misfit(lengths))])
    c = weight * (response - Family.MULTINOMIAL.mean(length * slopes))
    relative = float(np.sqrt(misfit(np.array([length]))[0]) / max(float(values[0]), 1e-300))
    return ClosedForm(gradient @ c / max(float(c @ c), 1e-300), c), relative


def _possible_lengths(slopes: FloatArray, size: float) -> FloatArray:
    """A grid of lengths, of both signs: ‖c‖ ≤ √2 bounds them below, saturated scores above."""
    lowest = max(size / np.sqrt(2.0), 1e-150)
    highest = max(10.0 * lowest, min(1e3 / max(float(np.ptp(slopes)), 1e-150), 1e150))
    lengths = np.geomspace(0.999 * lowest, highest, 2000)
    return np.concatenate([-lengths[::-1], lengths])


def _valleys(values: FloatArray) -> Array:
    """The indices of the deepest local minima, including the ends; a plateau counts once."""
    padded = np.concatenate([[np.inf], values, [np.inf]])
    lowest = np.flatnonzero((values < padded[:-2]) & (values <= padded[2:]))
    return np.asarray(lowest[np.argsort(values[lowest])][:8])


def _polished_length(
    length: float, slopes: FloatArray, expected: FloatArray, response: FloatArray, weight: float
) -> float:
    """A few Gauss–Newton steps: a bounded search is only exact to half of the digits."""
    for _ in range(20):
        c = weight * (response - Family.MULTINOMIAL.mean(length * slopes))
        turn = Family.MULTINOMIAL.curvature(length * slopes) @ slopes
        jacobian = c - length * weight * turn
        curvature = float(jacobian @ jacobian)
        if curvature == 0.0:
            break
        step = float(jacobian @ (length * c - expected)) / curvature
        length -= step
        if abs(step) <= 1e-15 * abs(length):
            break
    return length


def _linear_scores(response: float, along: float) -> list[float]:
    """Roots of s(y − s) = q. The discriminant is (y − 2s)²; only noise can make it negative."""
    half = 0.5 * np.sqrt(max(response**2 - 4.0 * along, 0.0))
    first = 0.5 * response + half if response >= 0 else 0.5 * response - half
    if first == 0.0:
        return [0.0]
    second = along / first
    return [first] if second == first else [first, second]


def _roots(reached: Callable[[FloatArray], FloatArray], family: Family) -> list[float]:
    """All roots of a function with one turning point, by bracketing on both sides of it."""

    def at(score: float) -> float:
        return float(reached(np.array([score]))[0])

    grid = np.concatenate(
        [
            -np.geomspace(-_SMALLEST_SCORE, 1e-8, 300),
            [0.0],
            np.geomspace(1e-8, _LARGEST_SCORE if family is Family.LOGISTIC else 500.0, 300),
        ]
    )
    top = int(np.argmax(reached(grid)))
    peak = minimize_scalar(
        lambda score: -at(score),
        bounds=(grid[max(top - 1, 0)], grid[min(top + 1, len(grid) - 1)]),
        method="bounded",
        options={"xatol": 1e-12},
    )
    points = np.sort(np.append(grid, peak.x))
    values = reached(points)
    roots = [float(score) for score in points[values == 0.0]]
    for i in np.flatnonzero(np.sign(values[:-1]) * np.sign(values[1:]) < 0):
        roots.append(float(brentq(at, points[i], points[i + 1], xtol=1e-15, rtol=1e-15)))
    return sorted(roots)
