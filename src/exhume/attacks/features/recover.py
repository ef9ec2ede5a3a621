"""Features from a head's gradient: the one call that a larger attack makes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from exhume.arrays import Array, FloatArray, require_finite
from exhume.attacks.features.activations import ODD
from exhume.attacks.features.first_order import first_order
from exhume.attacks.features.head import Head, Response
from exhume.attacks.features.labels import label_guesses
from exhume.attacks.features.norms import with_norms
from exhume.attacks.features.observed import Observed, observe
from exhume.attacks.features.polish import Fit, error_estimates
from exhume.attacks.features.search import Search, Settings
from exhume.errors import InputError


@dataclass(frozen=True, eq=False, kw_only=True)
class RecoveredFeatures:
    """What came back of a batch, in no particular order.

    ``features`` (B, d); ``labels`` (B,) class indices, read off the residuals even where labels
    were given, None for numbers; ``residuals`` (B, K) as they enter the mean loss.
    ``error_estimate`` (B,) is the standard error of a feature's entries; ``loss`` the share of the
    gradient's square that is left; ``evaluations`` those of the best start. ``norms_known``: False
    where features have norm 1 for want of anything that tells their length. ``certain``: the fit
    is exact, or its minimum was found twice.
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
    settings: Settings | None = None,
    adaptive: bool = True,
    rng: np.random.Generator,
) -> RecoveredFeatures:
    """Recover the inputs of ``head`` from the gradient (K, m) of its output weights.

    Liu et al. 2024, section 4.2, take the tensor method's directions as they are; here they, or the
    first order's, only start a fit of G = σ(WX)R. The gradient is of the mean loss over
    ``batch_size`` records; ``labels`` (batch_size,) are class indices or numbers, in any order.
    Entries that a defence set to 0 are recognised and left out of the fit; with ``adaptive`` False
    they are taken for zeros. Memory: two copies of W
    in float64, and blocks of (m, B) and (4096, K·B²).
    """
    settings = settings or Settings()
    gradient = _checked(head_gradient, head, batch_size)
    plain, size = head.standardised()
    height = float(np.abs(gradient).max())
    if height == 0.0:
        raise InputError("the head's gradient is all zeros: it holds nothing of the batch")
    observed = _observed(gradient / height, head, adaptive=adaptive)
    # A gradient of another size altogether must not drive the numbers out of their range.
    unit = float(np.clip(batch_size * height, 1e-9, 1e4))
    search = Search(plain, observed, batch_size, unit, labels, settings, rng)
    order = first_order(plain, observed.gradient)
    if head.response is Response.CLASSES and labels is None:
        guesses = label_guesses(
            plain, order, gradient, batch_size, bias_gradient=bias_gradient, rng=rng
        )
        search = search.with_best_labels(order, guesses)
    best, starts, certain = search.run(order)
    outcome = _Outcome(best, starts, certain)
    return _finished(outcome, search, size, height, labels)


def _turned(fit: Fit) -> Fit:
    """Choose between (x, r) and (−x, −r): a record's largest residual is its label's, negative."""
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


def _observed(gradient: FloatArray, head: Head, *, adaptive: bool) -> Observed:
    observed = observe(gradient) if adaptive else Observed(gradient)
    if observed.released is None and head.response is Response.CLASSES:
        # Residuals of a softmax sum to 0 over the classes; what doesn't is noise.
        return Observed(gradient - gradient.mean(axis=1, keepdims=True))
    return observed


@dataclass(frozen=True, eq=False)
class _Outcome:
    fit: Fit
    starts: int
    certain: bool


def _finished(
    outcome: _Outcome, search: Search, size: float, height: float, labels: Array | None
) -> RecoveredFeatures:
    """Return to the units of the features and of the gradient, and to the features' lengths."""
    head, fit = search.head, outcome.fit
    errors = error_estimates(head, search.observed, fit)
    if head.response is Response.CLASSES and head.activation in ODD and head.offsets is None:
        fit = _turned(fit)
    residuals = fit.residuals * height
    found = residuals.argmin(axis=1) if head.response is Response.CLASSES else None
    known = labels if head.response is Response.NUMBERS else found
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
