"""Newton's method for penalised generalised linear models, single or many that share data.

The objective is Σ wᵢ·loss(⟨xᵢ,θ⟩, yᵢ) + ½ Σ Λⱼ θⱼ², θ of shape (columns, outputs).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.errors import InputError
from exhume.training.families import Family

_MAX_STEPS = 200
_MAX_CHORD_STEPS = 30
_CHUNK = 64
"""Number of records solved at once: large matrix products that still fit in the cache."""


@dataclass(frozen=True, eq=False)
class Problem:
    """Design (n, p), responses (n, outputs), record weights (n,), penalty of each column (p,)."""

    family: Family
    design: FloatArray
    responses: FloatArray
    weights: FloatArray
    penalty: FloatArray

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the parameters."""
        return self.design.shape[1], self.responses.shape[1]

    def gradient(self, theta: FloatArray) -> FloatArray:
        """Return the gradient of the objective, (p, outputs)."""
        residual = self.family.mean(self.design @ theta) - self.responses
        gradient: FloatArray = self.design.T @ (self.weights[:, None] * residual)
        return gradient + self.penalty[:, None] * theta

    def objective(self, theta: FloatArray) -> float:
        """Return the penalised loss."""
        loss = self.weights @ self.family.loss(self.design @ theta, self.responses)
        return float(loss + 0.5 * np.sum(self.penalty[:, None] * theta**2))

    def hessian(self, theta: FloatArray) -> FloatArray:
        """Return the Hessian over (column, output) pairs, (p·outputs, p·outputs)."""
        columns, outputs = self.shape
        curvature = self.weights[:, None, None] * self.family.curvature(self.design @ theta)
        hessian = np.empty((columns, outputs, columns, outputs))
        for a in range(outputs):
            for b in range(a, outputs):
                block = self.design.T @ (curvature[:, a, b, None] * self.design)
                hessian[:, a, :, b] = hessian[:, b, :, a] = block
        for a in range(outputs):
            hessian[np.arange(columns), a, np.arange(columns), a] += self.penalty
        size = columns * outputs
        return hessian.reshape(size, size)

    def rounding(self, theta: FloatArray) -> float:
        """Return the size of rounding errors in one coordinate of the gradient (root mean square).

        A sum of n products has an error of about √n rounding units of its terms.
        """
        residual = self.weights[:, None] * (self.family.mean(self.design @ theta) - self.responses)
        return float(_rounding_each(self, theta[None], residual[:, None, :])[0])

    @cached_property
    def row_squares(self) -> FloatArray:
        """The squared norm of each row of the design, (n,)."""
        return np.asarray(np.einsum("np,np->n", self.design, self.design))

    @cached_property
    def column_squares(self) -> FloatArray:
        """The squared norm of each column of the design, (p,)."""
        return np.asarray(np.einsum("np,np->p", self.design, self.design))

    @cached_property
    def gauge(self) -> FloatArray:
        """Directions without effect on the objective: a constant added to a column's outputs."""
        if self.family is not Family.MULTINOMIAL:
            return np.zeros((self.design.shape[1] * self.shape[1], 0))
        free = np.flatnonzero(self.penalty == 0)
        gauge = np.zeros((*self.shape, len(free)))
        gauge[free, :, np.arange(len(free))] = 1.0
        return gauge.reshape(int(np.prod(self.shape)), len(free))


def factorised(problem: Problem, theta: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """Return the solver of Hessian systems at ``theta``; right-hand sides are (p·outputs, k)."""
    hessian = problem.hessian(theta)
    if not np.isfinite(hessian).all():
        raise InputError(_diverged(problem))
    # Scaled by its diagonal, the matrix does not depend on the units of the columns.
    diagonal = np.diag(hessian)
    unit = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))[:, None]
    # Steps stay orthogonal to the gauge, which gives the smallest of all equivalent parameters.
    gauge = problem.gauge / unit
    gauge = gauge / np.linalg.norm(gauge, axis=0)
    try:
        factor = cho_factor(
            hessian / unit / unit.T + gauge @ gauge.T, lower=True, check_finite=False
        )
    except LinAlgError:
        raise InputError(_undetermined(problem)) from None
    # A Cholesky factor can exist for a matrix that is singular for every practical purpose.
    if float(np.min(np.diag(factor[0]))) ** 2 < 1e-14:
        raise InputError(_undetermined(problem))
    return lambda right: np.asarray(cho_solve(factor, right / unit, check_finite=False) / unit)


def minimise(problem: Problem, start: FloatArray | None = None) -> FloatArray:
    """Return the minimiser, to rounding error, by damped Newton steps."""
    theta = np.zeros(problem.shape) if start is None else start.copy()
    unit = np.sqrt(problem.column_squares / len(problem.design))[:, None]
    value, size = problem.objective(theta), np.inf
    for _ in range(_MAX_STEPS):
        gradient = problem.gradient(theta)
        step = factorised(problem, theta)(gradient.reshape(-1, 1)).reshape(theta.shape)
        moved, reached = np.linalg.norm(unit * step), np.linalg.norm(unit * theta)
        previous, size = size, float(moved / (1.0 + reached))
        new, new_value = _damped(problem, theta, step, value)
        if new_value >= value and np.linalg.norm(problem.gradient(new)) >= np.linalg.norm(gradient):
            break
        theta, value = new, new_value
        # This close, a step that no longer shrinks consists of rounding errors.
        if size < 1e-15 or (size < 1e-8 and size > 0.5 * previous):
            break
    if size > 1e-6 or not np.isfinite(theta).all():
        raise InputError(_diverged(problem))
    return theta


def minimise_each(
    problem: Problem,
    rows: FloatArray,
    responses: FloatArray,
    penalties: FloatArray | None = None,
) -> FloatArray:
    """Return the minimiser with each extra record added in turn, (k, p, outputs).

    The Hessian of the shared records is factorised once. A record adds a rank-``outputs`` update
    (Woodbury), and all gradients come from two matrix products. ``rows`` (k, p), ``responses``
    (k, outputs). If this does not converge for a record, that record is solved separately.
    ``penalties`` (k, p) are those of each record's own problem, near the shared one.
    """
    if penalties is None:
        penalties = np.broadcast_to(problem.penalty, rows.shape)
    shared = minimise(problem)
    solve = factorised(problem, shared)
    found = np.empty((len(rows), *problem.shape))
    for i in range(0, len(rows), _CHUNK):
        chunk = slice(i, i + _CHUNK)
        extra = Extra(rows[chunk], responses[chunk], penalties[chunk] - problem.penalty)
        # A step may overflow e^x; such a record is then solved separately.
        with np.errstate(over="ignore", invalid="ignore"):
            best, sizes = _chords(problem, shared, solve, extra)
            floor = _floors(problem, shared, rows[chunk], responses[chunk], best)
        for j in np.flatnonzero(~(sizes <= floor)):
            own = replace(problem, penalty=penalties[i + j])
            best[j] = minimise(_with_record(own, rows[i + j], responses[i + j]))
        found[chunk] = best
    return found


@dataclass(frozen=True, eq=False)
class Extra:
    """What problems have beside the shared one, each its own: a record, and a change of penalty."""

    rows: FloatArray
    responses: FloatArray
    penalties: FloatArray

    def take(self, places: Array) -> Extra:
        """Return those of some problems."""
        return Extra(self.rows[places], self.responses[places], self.penalties[places])

    def gradients(self, family: Family, thetas: FloatArray) -> FloatArray:
        """Return their part of the gradients at parameters (k, p, outputs)."""
        own = family.mean(np.einsum("kp,kpo->ko", self.rows, thetas)) - self.responses
        return self.rows[:, :, None] * own[:, None, :] + self.penalties[:, :, None] * thetas


def _chords(
    problem: Problem,
    shared: FloatArray,
    solve: Callable[[FloatArray], FloatArray],
    extra: Extra,
) -> tuple[FloatArray, FloatArray]:
    """Return each record's best iterate and gradient norm, after steps with the shared Hessian."""
    # A gradient norm below this is rounding alone: no step makes it smaller.
    enough = np.sqrt(shared.size) * problem.rounding(shared)
    count = len(extra.rows)
    best, sizes = np.repeat(shared[None], count, axis=0), np.full(count, np.inf)
    # At the shared minimum only what a problem has beside the shared one has a gradient.
    first = extra.gradients(problem.family, best)
    thetas = best - _updated_steps(problem.family, solve, first, best, extra.rows)
    active = np.arange(count)
    for _ in range(_MAX_CHORD_STEPS):
        own = extra.take(active)
        gradients = gradients_each(problem, thetas) + own.gradients(problem.family, thetas)
        norms = np.linalg.norm(gradients, axis=(1, 2))
        # Another step is useful only while the gradient still halves.
        better, moving = norms < sizes[active], norms < 0.5 * sizes[active]
        moving &= norms > enough
        best[active[better]], sizes[active[better]] = thetas[better], norms[better]
        active, thetas, gradients = active[moving], thetas[moving], gradients[moving]
        if len(active) == 0:
            break
        rows = extra.rows[active]
        thetas = thetas - _updated_steps(problem.family, solve, gradients, thetas, rows)
    return best, sizes


def _damped(
    problem: Problem, theta: FloatArray, step: FloatArray, value: float
) -> tuple[FloatArray, float]:
    """Halve the step until the objective doesn't rise; a step that never helps is not taken."""
    fraction = 1.0
    while fraction > 1e-10:
        new = theta - fraction * step
        new_value = problem.objective(new)
        if np.isfinite(new_value) and new_value <= value + 1e-12 * abs(value):
            return new, new_value
        fraction *= 0.5
    return theta, value


def gradients_each(problem: Problem, thetas: FloatArray) -> FloatArray:
    """Return gradients of the shared problem at many parameters (k, p, outputs)."""
    return _gradients_each(problem, thetas, _residuals_each(problem, thetas))


def readings_each(problem: Problem, thetas: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return these gradients, and the rounding error per coordinate of each, (k,)."""
    residuals = _residuals_each(problem, thetas)
    return _gradients_each(problem, thetas, residuals), _rounding_each(problem, thetas, residuals)


def _residuals_each(problem: Problem, thetas: FloatArray) -> FloatArray:
    """Return weighted residuals of every response at every parameter, (n, k, outputs)."""
    count, columns, outputs = thetas.shape
    stacked = thetas.transpose(1, 0, 2).reshape(columns, count * outputs)
    scores = (problem.design @ stacked).reshape(-1, count, outputs)
    residuals = problem.family.mean(scores) - problem.responses[:, None, :]
    residuals *= problem.weights[:, None, None]
    return residuals


def _gradients_each(problem: Problem, thetas: FloatArray, residuals: FloatArray) -> FloatArray:
    count, columns, outputs = thetas.shape
    product = problem.design.T @ residuals.reshape(len(residuals), -1)
    gradients = product.reshape(columns, count, outputs).transpose(1, 0, 2)
    return np.asarray(gradients + problem.penalty[None, :, None] * thetas)


def _rounding_each(problem: Problem, thetas: FloatArray, residuals: FloatArray) -> FloatArray:
    _, columns, outputs = thetas.shape
    terms = np.einsum("n,nko,nko->k", problem.row_squares, residuals, residuals)
    own = np.einsum("p,kpo,kpo->k", problem.penalty**2, thetas, thetas)
    return np.asarray(4.0 * np.finfo(np.float64).eps * np.sqrt((terms + own) / columns / outputs))


def _updated_steps(
    family: Family,
    solve: Callable[[FloatArray], FloatArray],
    gradients: FloatArray,
    thetas: FloatArray,
    rows: FloatArray,
) -> FloatArray:
    """Return Newton steps with the shared Hessian and each record's own curvature (Woodbury)."""
    count, columns, outputs = gradients.shape
    curvature = family.curvature(np.einsum("kp,kpo->ko", rows, thetas))
    values, vectors = np.linalg.eigh(curvature)
    root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    update = (rows[:, :, None, None] * root[:, None, :, :]).reshape(count, -1, outputs)
    right = np.concatenate([gradients.reshape(count, -1, 1), update], axis=2)
    solved = solve(right.transpose(1, 0, 2).reshape(columns * outputs, -1))
    solved = solved.reshape(columns * outputs, count, 1 + outputs).transpose(1, 0, 2)
    plain, spread = solved[:, :, :1], solved[:, :, 1:]
    transposed = update.transpose(0, 2, 1)
    inner = np.linalg.solve(np.eye(outputs) + transposed @ spread, transposed @ plain)
    return np.asarray((plain - spread @ inner).reshape(count, columns, outputs))


def _floors(
    problem: Problem,
    shared: FloatArray,
    rows: FloatArray,
    responses: FloatArray,
    thetas: FloatArray,
) -> FloatArray:
    """Return an upper limit for the gradient norm due to rounding, for every extra record."""
    size = np.sqrt(shared.size)
    own = problem.family.mean(np.einsum("kp,kpo->ko", rows, thetas)) - responses
    extra = np.linalg.norm(rows, axis=1) * np.linalg.norm(own, axis=1)
    eps = np.finfo(np.float64).eps
    return np.asarray(16.0 * (size * problem.rounding(shared) + eps * extra))


def _with_record(problem: Problem, row: FloatArray, response: FloatArray) -> Problem:
    return Problem(
        problem.family,
        np.vstack([problem.design, row]),
        np.vstack([problem.responses, response]),
        np.append(problem.weights, 1.0),
        problem.penalty,
    )


def _undetermined(problem: Problem) -> str:
    records, columns = problem.design.shape
    return (
        f"the model is not determined by its data ({records} records, {columns} columns): some "
        "column is (nearly) a combination of the others, or there are more columns than records; "
        "drop it or add a penalty"
    )


def _diverged(problem: Problem) -> str:
    if problem.family.classifies and not problem.penalty.any():
        return (
            "training did not converge: without a penalty the classes can be separated perfectly "
            "and the coefficients grow without end; add a penalty"
        )
    return (
        f"training the {problem.family.value} model did not converge; check the data for extreme "
        "values (standardise the columns) or add a penalty"
    )
