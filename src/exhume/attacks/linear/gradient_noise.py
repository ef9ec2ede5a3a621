"""The best explanation of a noisy gradient: Levenberg–Marquardt on a Gaussian posterior.

It is used if the closed form is not optimal: with noise on the released parameters, with several
outputs, or with known attributes of the target.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from exhume.attacks.linear.levenberg_marquardt import Attempt, Unknowns, levenberg_marquardt
from exhume.protocol.arrays import Array, FloatArray
from exhume.training.families import Family

_NEGLIGIBLE = 1e-2
"""Of the negative log posterior: the cost of a move by a seventh of a deviation."""


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
    """A gradient with Gaussian noise, and what is known of the target.

    ``gradient`` (p, outputs) is x̃ cᵀ + noise. ``precision`` (p, outputs, p, outputs) is the
    inverse covariance of the noise, over (column, output) pairs. ``fixed`` (d,) marks known
    features.
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

    ``cost`` is the negative log evidence by Laplace's method, without a constant and the label's
    own prior. ``variance`` (d,) is the posterior variance of each feature.
    """

    x: FloatArray
    response: FloatArray
    cost: float
    variance: FloatArray
    converged: bool


def fit(noisy: Noisy, start: FloatArray, response: FloatArray, *, free_response: bool) -> Fit:
    """Find the most probable target near ``start`` with ``response`` (outputs,) given or free."""
    unknowns = Unknowns(start, response, np.flatnonzero(~noisy.fixed), free_response)
    found = levenberg_marquardt(
        lambda at: _cost(noisy, *unknowns.target(at), free_response),
        lambda at: _normal_equations(noisy, *unknowns.target(at), unknowns.free, free_response),
        unknowns.start,
        damping=1e-3,
        steps=100,
        settled=_settled,
    )
    x, y = unknowns.target(found.unknowns)
    variance = np.zeros(len(x))
    variance[unknowns.free] = found.variance[: len(unknowns.free)]
    evidence = found.cost + found.volume - noisy.prior.log_volume
    return Fit(x, y, evidence, variance, found.converged)


def _settled(attempt: Attempt) -> bool:
    """Return whether another step would change nothing relevant."""
    if attempt.taken:
        least = max(1e-4 * _NEGLIGIBLE, 1e-15 * attempt.cost)
        return attempt.gained <= least and attempt.damping <= 1.0
    # The step promised almost no gain and failed: only rounding errors remain.
    return attempt.damping > 1e12 or 2.0 * attempt.promised <= _NEGLIGIBLE


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
    """Hessian (Gauss–Newton) and slope of the negative log posterior in the free unknowns.

    The residual's Jacobian in x is c on the diagonal plus row ⊗ turn. Its products with the
    precision therefore need no matrix product.
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
