"""What enters a network's last layer, read off that layer's own gradient."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.attacks.matching.reading import Reading
from exhume.attacks.matching.wide_head import wide_features
from exhume.training.gradient import GradientStep

_EXPLAINED = 0.5
"""Features that leave more of the head's gradient than this are not believed."""
_RANK = 1e-4


class Route(Enum):
    """How features were read off a head's gradient."""

    RECOVERED = "recovered from the wide head (first order, then a fit)"
    FIXED_POINT = "fixed point of the linear head"
    SPAN = "span of the linear head's gradient"


@dataclass(frozen=True, eq=False)
class HeadFeatures:
    """``features`` (n, d) entering ``layer``, and the share of its gradient they don't explain.

    Row i is of the i-th label; for ``Route.SPAN`` rows are an orthonormal basis of what the
    features span, in no order. ``labels`` (n,) are the data's own, None where nothing new is known
    of them.
    """

    features: FloatArray
    layer: str
    residual: float
    route: Route
    labels: Array | None = None


def head_features(
    reading: Reading, labels: Array | None, rng: np.random.Generator
) -> HeadFeatures | None:
    """Return what enters the network's head, None where its gradient does not tell.

    A wide two-layer head gives its inputs away through ``attacks.features`` (Liu et al. 2024,
    section 4.2): labels may repeat or be unknown. A plain linear head has no hidden units to fit,
    so a fixed point stands in, for labels that all differ; else the span of its gradient, while
    the batch is smaller than the number of classes.
    """
    plain = isinstance(reading.mechanism, GradientStep) and reading.count == reading.total
    if not plain or reading.step.classes is None:
        return None
    responses = None if labels is None else reading.step.responses(labels)
    wide = _from_wide_head(reading, responses, rng)
    if wide is not None or responses is None:
        return wide
    return _from_linear_head(reading, responses)


def _from_wide_head(
    reading: Reading, responses: Array | None, rng: np.random.Generator
) -> HeadFeatures | None:
    from scipy.optimize import linear_sum_assignment

    fit = wide_features(reading, responses, rng)
    if fit is None or not fit[0].loss < _EXPLAINED**2:
        return None
    found, layer = fit
    rows, given = np.arange(reading.count), reading.knowledge.labels is not None
    if responses is not None and (given or not found.certain):
        # A record's own class is where its residual is most negative.
        _, rows = linear_sum_assignment(found.residuals[:, responses].T)
    labels = None
    if not given and found.certain and found.labels is not None:
        assert reading.step.classes is not None
        labels = np.asarray(reading.step.classes)[found.labels]
    residual = float(np.sqrt(max(found.loss, 0.0)))
    return HeadFeatures(found.features[rows], layer, residual, Route.RECOVERED, labels)


def _from_linear_head(reading: Reading, responses: Array) -> HeadFeatures | None:
    """The gradient is Rᵀ H: residuals R (n, classes), softmax less label, over n; features H.

    Labels make R known up to the softmax, which the features themselves give: a fixed point,
    reached in a few rounds. With two records of a class it is undetermined, but H and RᵀH span
    the same as long as R has rank n.
    """
    shapes = reading.step.network.parameter_shapes()
    weight, bias = list(shapes)[-2:] if len(shapes) > 1 else ("", "")
    linear = weight.endswith(".weight") and bias == weight.removesuffix("weight") + "bias"
    if not linear or weight not in reading.arrays or len(shapes[weight]) != 2:
        return None
    layer = weight.removesuffix(".weight")
    if len(set(responses.tolist())) < len(responses):
        basis = gradient_span(reading.arrays[weight], len(responses))
        return None if basis is None else HeadFeatures(basis, layer, 0.0, Route.SPAN)
    weights, offsets = (np.asarray(reading.parameters[n], dtype=np.float64) for n in (weight, bias))
    features, residual = solve_head(reading.arrays[weight], weights, offsets, responses)
    if not residual < _EXPLAINED:
        return None
    return HeadFeatures(features, layer, residual, Route.FIXED_POINT)


def gradient_span(gradient: FloatArray, count: int) -> FloatArray | None:
    """Return an orthonormal basis (count, d) of the rows of a head's gradient (classes, d).

    None where its rank is not ``count``, to the accuracy of single precision: then the rows don't
    span all features.
    """
    classes, dimension = gradient.shape
    if count >= min(classes, dimension):
        return None
    _, sizes, right = np.linalg.svd(gradient, full_matrices=False)
    whole = sizes[count - 1] > _RANK * sizes[0] and sizes[count] < 0.1 * sizes[count - 1]
    basis: FloatArray = right[:count]
    return basis if whole else None


def solve_head(
    gradient: FloatArray, weights: FloatArray, offsets: FloatArray, responses: Array
) -> tuple[FloatArray, float]:
    """Return features (n, d) from the head's gradient (classes, d), and the relative residual.

    >>> rng = np.random.default_rng(0)
    >>> weights, features = rng.normal(size=(5, 8)), rng.random((2, 8))
    >>> answers = np.exp(features @ weights.T)
    >>> residuals = (answers / answers.sum(axis=1, keepdims=True) - np.eye(5)[[3, 1]]) / 2
    >>> found, left = solve_head(residuals.T @ features, weights, np.zeros(5), np.array([3, 1]))
    >>> bool(np.allclose(found, features)), left < 1e-9
    (True, True)
    """
    from scipy.special import softmax

    count, classes = len(responses), len(weights)
    truth = np.eye(classes)[responses]
    shares: FloatArray = np.full((count, classes), 1.0 / classes)
    features: FloatArray = np.zeros((count, gradient.shape[1]))
    for _ in range(200):
        residuals = (shares - truth) / count
        features = np.linalg.lstsq(residuals.T, gradient, rcond=None)[0]
        new = softmax(np.clip(features @ weights.T + offsets, -500.0, 500.0), axis=1)
        change = float(np.abs(new - shares).max())
        shares = 0.5 * (shares + new) if change > 0.5 else new
        if change < 1e-12:
            break
    left = np.linalg.norm(((shares - truth) / count).T @ features - gradient)
    return features, float(left / max(float(np.linalg.norm(gradient)), 1e-300))
