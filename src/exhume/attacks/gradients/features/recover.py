"""Features from a head's gradient: the entry point for larger attacks.

Also the norm of a feature, which a homogeneous activation hides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from exhume.attacks.gradients.features.first_order import first_order, label_guesses
from exhume.attacks.gradients.features.fit import FeatureFit, error_estimates
from exhume.attacks.gradients.features.head import Head, ResponseKind
from exhume.attacks.gradients.features.masked_gradient import MaskedGradient, observe
from exhume.attacks.gradients.features.search import FeatureSearch, FeatureSearchSettings
from exhume.derivatives.activations import ODD
from exhume.protocol.arrays import Array, FloatArray, require_finite
from exhume.protocol.errors import InputError

_GRID = np.geomspace(1e-3, 1e3, 400)
_NORM_ROUNDS = 6


@dataclass(frozen=True, eq=False)
class ScaledFeatures:
    """Features (B, d), residuals (B, K), and the ``factors`` (B,) that scaled them."""

    features: FloatArray
    residuals: FloatArray
    factors: FloatArray
    known: bool


def with_norms(
    head: Head, features: FloatArray, residuals: FloatArray, labels: Array | None
) -> ScaledFeatures:
    """Scale each feature so that the head's residual at it equals the residual found.

    σ(W·cx)·(r/c) is the same for every c > 0. But at cx the head predicts softmax(scores), so
    r/c = p(cx) − e_y must hold, one equation in c per class. It is solved by least squares, on
    grids that are refined around the best point. For numbers, c·(c·f − y) = r is a quadratic
    equation if all records have one response. Without A or the labels, features are scaled to
    norm 1. Heads that are not homogeneous determine the norm directly. ``residuals`` (B, K) belong
    to the summed loss.
    """
    ones = np.ones(len(features))
    if not head.scale_free:
        return ScaledFeatures(features, residuals, ones, True)
    norms = np.maximum(np.linalg.norm(features, axis=1), 1e-300)
    if head.output is None or labels is None:
        return _by(features, residuals, 1.0 / norms, known=False)
    values, _ = head.hidden(features / norms[:, None])
    scores = (head.output @ values).T
    offsets = np.zeros(len(head.output)) if head.output_offsets is None else head.output_offsets
    found = residuals * norms[:, None]
    if head.response is ResponseKind.NUMBERS:
        lengths = _roots(scores[:, 0], offsets[0] - np.asarray(labels), found[:, 0])
        return _by(features, residuals, lengths / norms, known=bool((lengths != 1.0).all()))
    lengths = np.array(
        [
            _length(score, offsets, residual, int(label))
            for score, residual, label in zip(scores, found, labels, strict=True)
        ]
    )
    return _by(features, residuals, lengths / norms, known=True)


def _roots(score: FloatArray, shifts: FloatArray, residual: FloatArray) -> FloatArray:
    """Return c > 0 with c·(c·f + shift) = r for each record, or 1 if it is not unique."""
    lengths = np.ones(len(score))
    if np.ptp(shifts) > 0:
        # The assignment of responses to features is not known.
        return lengths
    for i in range(len(score)):
        roots = np.roots([score[i], shifts[0], -residual[i]])
        positive = roots[np.isreal(roots) & (roots.real > 0)].real
        if len(positive) == 1:
            lengths[i] = positive[0]
    return lengths


def _length(score: FloatArray, offsets: FloatArray, residual: FloatArray, label: int) -> float:
    """Return c with c·(p(c) − e_y) = ``residual`` (K,), the residual of the direction."""

    def misfit(lengths: FloatArray) -> FloatArray:
        found = lengths[:, None] * _softmax_residual(lengths[:, None] * score + offsets, label)
        return np.asarray(((found - residual) ** 2).sum(axis=1))

    grid = _GRID
    for _ in range(_NORM_ROUNDS):
        at = int(np.argmin(misfit(grid)))
        low, high = grid[max(at - 1, 0)], grid[min(at + 1, len(grid) - 1)]
        grid = np.linspace(low, high, 400)
    return float(grid[np.argmin(misfit(grid))])


def _softmax_residual(scores: FloatArray, label: int) -> FloatArray:
    from scipy.special import softmax

    shares: FloatArray = softmax(scores, axis=1)
    shares[:, label] -= 1.0
    return shares


def _by(
    features: FloatArray, residuals: FloatArray, factors: FloatArray, *, known: bool
) -> ScaledFeatures:
    column = factors[:, None]
    return ScaledFeatures(features * column, residuals / np.maximum(column, 1e-300), factors, known)


@dataclass(frozen=True, eq=False, kw_only=True)
class RecoveredFeatures:
    """The recovered batch, in no particular order.

    ``features`` (B, d). ``labels`` (B,) are class indices from the residuals, even if labels were
    given; None for numbers. ``residuals`` (B, K) belong to the mean loss. ``error_estimate`` (B,)
    is the standard error of a feature's entries. ``loss`` is the unexplained share of the
    gradient's square. ``evaluations`` are those of the best start. ``norms_known`` is False if the
    norms are unknown and set to 1. ``certain`` is True if the fit is exact, or if its minimum was
    found twice.
    """

    features: FloatArray
    labels: Array | None
    residuals: FloatArray
    error_estimate: FloatArray
    loss: float
    starts: int
    evaluations: int
    norms_known: bool
    certain: bool


def recover_features(
    head_gradient: FloatArray,
    head: Head,
    batch_size: int,
    *,
    labels: Array | None = None,
    bias_gradient: FloatArray | None = None,
    settings: FeatureSearchSettings | None = None,
    adaptive: bool = True,
    rng: np.random.Generator,
) -> RecoveredFeatures:
    """Recover the inputs of ``head`` from the gradient (K, m) of its output weights.

    Liu et al. 2024, section 4.2, use the tensor method's directions directly. Here these, or the
    first order's, only start a fit of G = σ(WX)R. The gradient belongs to the mean loss over
    ``batch_size`` records; ``labels`` (batch_size,) are class indices or numbers, in any order.
    Entries that a defence set to 0 are recognised and excluded from the fit; with
    ``adaptive=False`` they count as zeros. Memory: two copies of W in float64, and blocks of
    (m, B) and (4096, K·B²).
    """
    settings = settings or FeatureSearchSettings()
    gradient = _checked(head_gradient, head, batch_size)
    plain, size = head.standardised()
    height = float(np.abs(gradient).max())
    if height == 0.0:
        raise InputError("the head's gradient is all zeros: it holds nothing of the batch")
    observed = _observed(gradient / height, head, adaptive=adaptive)
    # A gradient of extreme size must not cause overflow.
    unit = float(np.clip(batch_size * height, 1e-9, 1e4))
    search = FeatureSearch(plain, observed, batch_size, unit, labels, settings, rng)
    order = first_order(plain, observed.gradient)
    if head.response is ResponseKind.CLASSES and labels is None:
        guesses = label_guesses(
            plain, order, gradient, batch_size, bias_gradient=bias_gradient, rng=rng
        )
        search = search.with_best_labels(order, guesses)
    best, starts, certain = search.run(order)
    outcome = _Recovery(best, starts, certain)
    return _finished(outcome, search, size, height, labels)


def _turned(fit: FeatureFit) -> FeatureFit:
    """Choose between (x, r) and (−x, −r): the largest residual, the label's, is negative."""
    largest = np.abs(fit.residuals).argmax(axis=1)
    signs = -np.sign(fit.residuals[np.arange(len(largest)), largest])[:, None]
    return replace(fit, features=fit.features * signs, residuals=fit.residuals * signs)


def _checked(gradient: FloatArray, head: Head, batch_size: int) -> FloatArray:
    array = np.asarray(gradient, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] != len(head.weights):
        raise InputError(
            f"the head's gradient must have shape (outputs, {len(head.weights)}), got {array.shape}"
        )
    require_finite(array, "the head's gradient")
    if batch_size < 1:
        raise InputError(f"batch_size must be at least 1, got {batch_size}")
    return array.T


def _observed(gradient: FloatArray, head: Head, *, adaptive: bool) -> MaskedGradient:
    observed = observe(gradient) if adaptive else MaskedGradient(gradient)
    if observed.released is None and head.response is ResponseKind.CLASSES:
        # Residuals of a softmax sum to 0 over the classes; the rest is noise.
        return MaskedGradient(gradient - gradient.mean(axis=1, keepdims=True))
    return observed


@dataclass(frozen=True, eq=False)
class _Recovery:
    fit: FeatureFit
    starts: int
    certain: bool


def _finished(
    outcome: _Recovery, search: FeatureSearch, size: float, height: float, labels: Array | None
) -> RecoveredFeatures:
    """Convert to the units of the features and of the gradient, and to the features' norms."""
    head, fit = search.head, outcome.fit
    errors = error_estimates(head, search.observed, fit)
    if head.response is ResponseKind.CLASSES and head.activation in ODD and head.offsets is None:
        fit = _turned(fit)
    residuals = fit.residuals * height
    found = residuals.argmin(axis=1) if head.response is ResponseKind.CLASSES else None
    known = labels if head.response is ResponseKind.NUMBERS else found
    scaled = with_norms(head, fit.features, residuals * search.count, known)
    if not scaled.known:
        # Norm 1 in the features' own units, not in those of the standardised head.
        size = 1.0
    return RecoveredFeatures(
        features=scaled.features / size,
        labels=found,
        residuals=scaled.residuals / search.count,
        error_estimate=np.nan_to_num(errors * scaled.factors / size, nan=np.inf, posinf=np.inf),
        loss=fit.loss,
        starts=outcome.starts,
        evaluations=fit.evaluations,
        norms_known=scaled.known,
        certain=outcome.certain,
    )
