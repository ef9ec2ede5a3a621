"""What enters a network's last layer, read off that layer's own gradient."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.attacks.matching.reading import Reading
from exhume.training.gradient import GradientStep


@dataclass(frozen=True, eq=False)
class HeadFeatures:
    """``features`` (n, d) entering ``layer``, and the share of its gradient they don't explain."""

    features: FloatArray
    layer: str
    residual: float


def head_features(reading: Reading, labels: Array | None) -> HeadFeatures | None:
    """Return the features of a batch whose labels are all different, None where that is not so.

    The gradient of a linear head is Rᵀ H: residuals R (n, classes), softmax less label, over n, and
    features H (n, d). Labels make R known up to the softmax, which the features themselves give: a
    fixed point, reached in a few rounds. With two records of a class R loses its rank.
    """
    shapes = reading.step.network.parameter_shapes()
    weight, bias = list(shapes)[-2:] if len(shapes) > 1 else ("", "")
    plain = isinstance(reading.mechanism, GradientStep) and reading.count == reading.total
    if not plain or labels is None or reading.step.classes is None:
        return None
    linear = weight.endswith(".weight") and bias == weight.removesuffix("weight") + "bias"
    if not linear or weight not in reading.arrays or len(shapes[weight]) != 2:
        return None
    responses = reading.step.responses(labels)
    if len(set(responses.tolist())) < len(responses):
        return None
    weights, offsets = (np.asarray(reading.parameters[n], dtype=np.float64) for n in (weight, bias))
    features, residual = solve_head(reading.arrays[weight], weights, offsets, responses)
    if not residual < 0.5:
        return None
    return HeadFeatures(features, weight.removesuffix(".weight"), residual)


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
