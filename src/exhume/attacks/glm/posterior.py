"""The best explanation of a noisy gradient: Levenberg–Marquardt on a Gaussian posterior.

Used where the closed form is not the last word: noise on the released parameters, several outputs,
or attributes of the target that are known.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from exhume.arrays import Array, FloatArray
from exhume.training.families import Family

_NEGLIGIBLE_GAIN = 1e-10

_NEGLIGIBLE = 1e-2
"""Of the negative log posterior: as much as a move by a seventh of a deviation costs."""


@dataclass(frozen=True, eq=False)
class Prior:
    """A Gaussian over records: mean (d,), precision (d, d); over responses: mean, deviation."""

    mean: FloatArray
    precision: FloatArray
    variance: float
    response_mean: float
    response_deviation: float

    @cached_property
    def log_volume(self) -> float:
        """Half the log determinant of the precision."""
        return 0.5 * float(np.linalg.slogdet(self.precision)[1])


@dataclass(frozen=True, eq=False)
class Noisy:
    """A gradient seen through Gaussian noise, and what is known of the target.

    ``gradient`` (p, outputs) = x̃ cᵀ + noise, whose ``precision`` (the inverse covariance) runs over
    (column, output) pairs: (p, outputs, p, outputs). ``fixed`` (d,) marks known features.
    """

    family: Family
    theta: FloatArray
    gradient: FloatArray
    precision: FloatArray
    weight: float
    prior: Prior
    fixed: Array
    intercept: bool


@dataclass(frozen=True, eq=False)
class Fit:
    """A stationary point of the posterior.

    ``cost`` is the negative log evidence by Laplace's method, up to a constant and the label's own
    prior; ``variance`` (d,) the posterior variance of each feature.
    """

    x: FloatArray
    response: FloatArray
    cost: float
    variance: FloatArray
    converged: bool


def fit(noisy: Noisy, start: FloatArray, response: FloatArray, *, free_response: bool) -> Fit:
    """Find the most probable target near ``start`` with ``response`` (outputs,) given or free."""
    x, y, damping, converged = start.copy(), response.copy(), 1e-3, False
    free = np.flatnonzero(~noisy.fixed)
    cost = _cost(noisy, x, y, free_response)
    hessian, slope = _normal_equations(noisy, x, y, free, free_response)
    for _ in range(100):
        step = _damped_solve(hessian, damping, slope)
        new_x, new_y = x.copy(), y.copy()
        new_x[free] -= step[: len(free)]
        if free_response:
            new_y -= step[len(free) :]
        new_cost = _cost(noisy, new_x, new_y, free_response)
        if not new_cost <= cost:
            # A step that promised next to nothing and failed: rounding errors are all that is left.
            if damping > 1e12 or float(step @ slope) <= _NEGLIGIBLE:
                converged = True
                break
            damping *= 10.0
            continue
        gain = cost - new_cost
        x, y, cost = new_x, new_y, new_cost
        if gain <= max(1e-4 * _NEGLIGIBLE, 1e-15 * cost) and damping <= 1.0:
            converged = True
            break
        damping = max(damping * 0.1, 1e-16)
        hessian, slope = _normal_equations(noisy, x, y, free, free_response)
    hessian, _ = _normal_equations(noisy, x, y, free, free_response)
    factor = sturdy_factor(hessian)
    variance = np.zeros(len(x))
    variance[free] = np.diag(cho_solve(factor, np.eye(len(hessian))))[: len(free)]
    volume = float(np.sum(np.log(np.diag(factor[0]))))
    volume -= noisy.prior.log_volume
    evidence = _cost(noisy, x, y, free_response) + volume
    return Fit(x, y, evidence, variance, converged)


def _row(noisy: Noisy, x: FloatArray) -> FloatArray:
    return np.concatenate([[1.0], x]) if noisy.intercept else x


def _unexplained(noisy: Noisy, row: FloatArray, response: FloatArray) -> FloatArray:
    return np.asarray(noisy.weight * (response - noisy.family.mean(row @ noisy.theta)))


def _residual(noisy: Noisy, x: FloatArray, response: FloatArray) -> FloatArray:
    row = _row(noisy, x)
    return np.outer(row, _unexplained(noisy, row, response)) - noisy.gradient


def _weighed(noisy: Noisy, residual: FloatArray) -> FloatArray:
    return np.asarray(np.tensordot(noisy.precision, residual, axes=2))


def _cost(noisy: Noisy, x: FloatArray, response: FloatArray, free_response: bool) -> float:
    with np.errstate(over="ignore", invalid="ignore"):
        residual = _residual(noisy, x, response)
        cost = 0.5 * float(np.sum(residual * _weighed(noisy, residual)))
    away = x - noisy.prior.mean
    cost += 0.5 * float(away @ noisy.prior.precision @ away)
    if free_response:
        cost += 0.5 * _surprise(noisy, response) ** 2
    return cost


def _surprise(noisy: Noisy, response: FloatArray) -> float:
    return float((response[0] - noisy.prior.response_mean) / noisy.prior.response_deviation)


def _normal_equations(
    noisy: Noisy, x: FloatArray, response: FloatArray, free: Array, free_response: bool
) -> tuple[FloatArray, FloatArray]:
    """Hessian (Gauss–Newton) and slope of the negative log posterior over the free unknowns.

    The residual's Jacobian in x is c on the diagonal plus row ⊗ turn, so that its products with
    the precision need no matrix product.
    """
    row, skip = _row(noisy, x), int(noisy.intercept)
    c = _unexplained(noisy, row, response)
    curvature = noisy.family.curvature((row @ noisy.theta)[None, :])[0]
    turn = -noisy.weight * curvature @ noisy.theta[skip:].T
    onto_c = np.tensordot(noisy.precision, c, axes=(3, 0))
    diagonal = np.tensordot(onto_c, c, axes=(1, 0))[skip:, skip:]
    mixed = np.tensordot(row, onto_c, axes=(0, 0))[:, skip:]
    onto_row = np.tensordot(noisy.precision, row, axes=(2, 0))
    corner = np.tensordot(row, onto_row, axes=(0, 0))
    hessian = diagonal + turn.T @ mixed + mixed.T @ turn + turn.T @ corner @ turn
    weighed = _weighed(noisy, _residual(noisy, x, response))
    slope = weighed[skip:] @ c + turn.T @ (row @ weighed)
    hessian = (hessian + noisy.prior.precision)[np.ix_(free, free)]
    slope = (slope + noisy.prior.precision @ (x - noisy.prior.mean))[free]
    if not free_response:
        return hessian, slope
    cross = noisy.weight * (mixed[0] + turn.T @ corner[:, 0])[free]
    own = noisy.weight**2 * corner[0, 0] + noisy.prior.response_deviation**-2
    last = noisy.weight * float(row @ weighed[:, 0])
    last += _surprise(noisy, response) / noisy.prior.response_deviation
    full = np.block([[hessian, cross[:, None]], [cross[None, :], np.array([[own]])]])
    return full, np.append(slope, last)


def _damped_solve(hessian: FloatArray, damping: float, slope: FloatArray) -> FloatArray:
    damped = hessian + damping * np.diag(np.diag(hessian) + 1e-300)
    return np.asarray(cho_solve(sturdy_factor(damped), slope))


def sturdy_factor(hessian: FloatArray) -> tuple[FloatArray, bool]:
    """Return the Cholesky factor; at absurd parameters rounding alone can cost it its existence."""
    diagonal = np.diag(np.diag(hessian))
    for doubt in (0.0, 1e-14, 1e-11, 1e-8):
        try:
            factor, lower = cho_factor(hessian + doubt * diagonal, lower=True, check_finite=False)
        except LinAlgError:
            continue
        return factor, lower
    return np.sqrt(diagonal), True
