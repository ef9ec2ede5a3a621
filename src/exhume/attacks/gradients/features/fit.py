"""Nonlinear least squares over the features X: min ‖G − σ(WX)R‖².

The residuals R of a fit are held fixed, free, or equal to those of the head itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from exhume.attacks.gradients.features.head import Head, ResponseKind
from exhume.attacks.gradients.features.masked_gradient import MaskedGradient
from exhume.protocol.arrays import Array, FloatArray

_RESIDUAL_RIDGE = 1e-12


class Residuals(Protocol):
    """R (B, K) as a function of the hidden values (m, B)."""

    def at(self, values: FloatArray) -> FloatArray:
        """Return R."""

    def pulled_back(self, residuals: FloatArray, slope: FloatArray) -> FloatArray | None:
        """Return ∂/∂values (m, B) of a loss with ``slope`` ∂/∂R (B, K); None for 0."""


@dataclass(frozen=True, eq=False)
class Held:
    """R is constant: (p − e_y)/B hardly changes while the head is unsure."""

    residuals: FloatArray

    def at(self, values: FloatArray) -> FloatArray:
        """Return the constant R."""
        return self.residuals

    def pulled_back(self, residuals: FloatArray, slope: FloatArray) -> FloatArray | None:
        """Return None: R is constant."""
        return None


@dataclass(frozen=True, eq=False)
class Free:
    """The R that explains the released entries best (variable projection, Golub & Pereyra 1973)."""

    observed: MaskedGradient

    def at(self, values: FloatArray) -> FloatArray:
        """Return the least-squares R, each output over its own released entries."""
        gradient, released = self.observed.gradient, self.observed.released
        if released is None:
            return _consistent_multipliers(values, gradient)
        columns = [
            _consistent_multipliers(values[rows], gradient[rows, k : k + 1])
            for k, rows in enumerate(released.T)
        ]
        return np.concatenate(columns, axis=1)

    def pulled_back(self, residuals: FloatArray, slope: FloatArray) -> FloatArray | None:
        """Return None: at the best R the loss has no slope in R."""
        return None


@dataclass(frozen=True, eq=False)
class Consistent:
    """The R of the head at these hidden values, for known ``responses`` (B,).

    ``unit`` is the divisor of a residual: the batch size times the gradient's unit.
    """

    head: Head
    responses: Array
    outputs: int
    unit: float

    def at(self, values: FloatArray) -> FloatArray:
        """Return (p − e_y)/unit, or (score − y)/unit."""
        return self.head.residuals(values, self.responses, self.outputs) / self.unit

    def pulled_back(self, residuals: FloatArray, slope: FloatArray) -> FloatArray | None:
        """Backpropagate through softmax and A; return None if A is not known."""
        if self.head.output is None:
            return None
        slope = slope / self.unit
        if self.head.response is ResponseKind.CLASSES:
            shares = residuals * self.unit
            shares[np.arange(len(shares)), self.responses] += 1.0
            slope = shares * (slope - (shares * slope).sum(axis=1, keepdims=True))
        back: FloatArray = self.head.output.T @ slope.T
        return back


def _consistent_multipliers(values: FloatArray, gradient: FloatArray) -> FloatArray:
    gram = values.T @ values
    gram[np.diag_indices_from(gram)] += _RESIDUAL_RIDGE * np.trace(gram) + 1e-300
    solved: FloatArray = np.linalg.solve(gram, values.T @ gradient)
    return solved


_DAMPING = 1e-2
_PARTS = 4
_PATIENCE, _PROGRESS = 10, 1e-5


@dataclass(frozen=True, eq=False)
class FeatureFit:
    """``features`` (B, d), their ``residuals`` R (B, K), and the unexplained share.

    ``loss`` is the squared norm of the fit's remainder over the squared norm of G.
    """

    features: FloatArray
    residuals: FloatArray
    loss: float
    evaluations: int


def polish(
    head: Head,
    observed: MaskedGradient,
    start: FloatArray,
    residuals: Residuals,
    *,
    iterations: int,
) -> FeatureFit:
    """Minimise over the features from ``start`` (B, d), with R given by ``residuals``.

    Uses L-BFGS, preconditioned again after each part of the ``iterations``. An evaluation costs two
    products of W with a (d, B) matrix. Memory: a few arrays of shape (m, max(B, K)).
    """
    fit = FeatureFit(start, np.empty((len(start), 0)), np.inf, 0)
    for part in range(_PARTS):
        limit = max(iterations // 2 ** (_PARTS - part), 10)
        better = _descended(head, observed, fit.features, residuals, limit)
        evaluations = fit.evaluations + better.evaluations
        done = better.loss > (1 - _PROGRESS) * fit.loss
        fit = FeatureFit(better.features, better.residuals, better.loss, evaluations)
        if done:
            break
    return fit


def loss_and_slope(
    head: Head, observed: MaskedGradient, features: FloatArray, residuals: Residuals
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


def error_estimates(head: Head, observed: MaskedGradient, fit: FeatureFit) -> FloatArray:
    """Return the standard error (B,) of each feature's entries, from the remainder of the fit.

    Uses Gauss–Newton with WᵀDW ≈ tr(D)·I, which random rows justify. The error is infinite if the
    fit does not determine a feature.
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
    """Return (RRᵀ ∘ Σσ′σ′ᵀ) (B, B), whose product with I approximates the Gauss–Newton matrix."""
    _, slopes = head.hidden(features)
    information: FloatArray = (residuals @ residuals.T) * (slopes.T @ slopes)
    return information * float(np.mean(head.weights**2))


def _descended(
    head: Head, observed: MaskedGradient, start: FloatArray, residuals: Residuals, iterations: int
) -> FeatureFit:
    """Run L-BFGS in coordinates in which the Gauss–Newton matrix at ``start`` is close to I.

    Features with equal labels have nearly equal residuals. Without preconditioning, their
    differences hardly move.
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
    return FeatureFit(features, weights, float(found.fun), int(found.nfev))


def _conditioned(matrix: FloatArray) -> FloatArray:
    """Return M^(−½) of a positive semi-definite matrix (B, B), with damping."""
    sizes, vectors = np.linalg.eigh(matrix)
    top = max(float(sizes[-1]), 1e-300)
    roots = 1.0 / np.sqrt(np.maximum(sizes, 0.0) + _DAMPING * top)
    root: FloatArray = (vectors * roots) @ vectors.T
    return root
