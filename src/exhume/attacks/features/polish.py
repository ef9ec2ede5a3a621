"""Nonlinear least squares: min ‖G − σ(WX)R‖² over the features X."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from exhume.arrays import FloatArray
from exhume.attacks.features.head import Head
from exhume.attacks.features.observed import Observed
from exhume.attacks.features.residuals import Residuals

_DAMPING = 1e-2
_PARTS = 4
_PATIENCE, _PROGRESS = 10, 1e-5


@dataclass(frozen=True, eq=False)
class Fit:
    """``features`` (B, d), their ``residuals`` R (B, K), and what remains unexplained.

    ``loss`` is the squared norm of what the fit leaves over the squared norm of G.
    """

    features: FloatArray
    residuals: FloatArray
    loss: float
    evaluations: int


def polish(
    head: Head, observed: Observed, start: FloatArray, residuals: Residuals, *, iterations: int
) -> Fit:
    """Minimise over the features from ``start`` (B, d), R given by ``residuals``.

    L-BFGS, conditioned anew at a part of the ``iterations`` each time. An evaluation costs two
    products of W with a (d, B) matrix. Memory: a few arrays of shape (m, max(B, K)).
    """
    fit = Fit(start, np.empty((len(start), 0)), np.inf, 0)
    for part in range(_PARTS):
        limit = max(iterations // 2 ** (_PARTS - part), 10)
        better = _descended(head, observed, fit.features, residuals, limit)
        evaluations = fit.evaluations + better.evaluations
        done = better.loss > (1 - _PROGRESS) * fit.loss
        fit = Fit(better.features, better.residuals, better.loss, evaluations)
        if done:
            break
    return fit


def loss_and_slope(
    head: Head, observed: Observed, features: FloatArray, residuals: Residuals
) -> tuple[float, FloatArray]:
    """Return ‖G − σ(WX)R‖²/‖G‖² at ``features`` X (B, d), and its gradient (B, d)."""
    values, slopes = head.hidden(features)
    weights = residuals.at(values)
    left = observed.left(values @ weights)
    back = left @ weights.T
    further = residuals.pulled_back(weights, values.T @ left)
    if further is not None:
        back += further
    slope = -2.0 * ((back * slopes).T @ head.weights)
    return float((left**2).sum()) / observed.total, slope / observed.total


def error_estimates(head: Head, observed: Observed, fit: Fit) -> FloatArray:
    """Return the standard error (B,) of each feature's entries, from what the fit leaves.

    Gauss–Newton with WᵀDW ≈ tr(D)·I, which random rows justify. Infinite where the fit does not
    determine a feature.
    """
    information = _information(head, fit.features, fit.residuals)
    information *= observed.count / observed.gradient.size
    freedom = max(observed.count - fit.features.size - fit.residuals.size, 1)
    variance = fit.loss * observed.total / freedom
    floor = 1e-12 * float(np.trace(information)) + 1e-300
    spread = np.linalg.pinv(information + floor * np.eye(len(information)), hermitian=True)
    known = np.diag(information) > 10 * floor
    return np.where(known, np.sqrt(variance * np.diag(spread).clip(0.0)), np.inf)


def _information(head: Head, features: FloatArray, residuals: FloatArray) -> FloatArray:
    """Return (RRᵀ ∘ Σσ′σ′ᵀ) (B, B): the Gauss–Newton matrix is near its product with I."""
    _, slopes = head.hidden(features)
    information: FloatArray = (residuals @ residuals.T) * (slopes.T @ slopes)
    return information * float(np.mean(head.weights**2))


def _descended(
    head: Head, observed: Observed, start: FloatArray, residuals: Residuals, iterations: int
) -> Fit:
    """Run L-BFGS in coordinates in which the Gauss–Newton matrix at ``start`` is near I.

    Features with equal labels have nearly equal residuals: without that, their differences hardly
    move.
    """
    from scipy.optimize import minimize

    weights = residuals.at(head.hidden(start)[0])
    coordinates = _conditioned(_information(head, start, weights) / observed.total)
    recent: list[float] = []

    def loss(flat: FloatArray) -> tuple[float, FloatArray]:
        features = coordinates @ flat.reshape(start.shape)
        value, slope = loss_and_slope(head, observed, features, residuals)
        return value, (coordinates @ slope).ravel()

    def stop(intermediate_result: Any) -> None:
        recent.append(float(intermediate_result.fun))
        if len(recent) > _PATIENCE and recent[-1] > (1 - _PROGRESS) * recent[-1 - _PATIENCE]:
            raise StopIteration

    options = {"maxiter": iterations, "maxfun": 2 * iterations, "maxcor": 20}
    limits = {"ftol": 1e-16, "gtol": 1e-12}
    found = minimize(
        loss,
        np.linalg.solve(coordinates, start).ravel(),
        jac=True,
        method="L-BFGS-B",
        options=options | limits,
        callback=stop,
    )
    features = coordinates @ found.x.reshape(start.shape)
    weights = residuals.at(head.hidden(features)[0])
    return Fit(features, weights, float(found.fun), int(found.nfev))


def _conditioned(matrix: FloatArray) -> FloatArray:
    """Return M^(−½) of a positive semi-definite matrix (B, B), damped."""
    sizes, vectors = np.linalg.eigh(matrix)
    top = max(float(sizes[-1]), 1e-300)
    roots = 1.0 / np.sqrt(np.maximum(sizes, 0.0) + _DAMPING * top)
    root: FloatArray = (vectors * roots) @ vectors.T
    return root
