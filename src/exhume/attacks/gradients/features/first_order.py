"""First order: a linear regression of a head's gradient on its hidden weights.

Also the starts of the fits: the mean of each class to first order, or the tensor method's
directions. And guesses of the classes in a batch from a head's gradient, which the fit corrects.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exhume.attacks.gradients.features.head import Head
from exhume.protocol.arrays import Array, FloatArray

_RIDGE = 1e-9


@dataclass(frozen=True, eq=False)
class HeadRegression:
    """G ≈ 1·cᵀ + W·C: ``intercept`` c (K,), ``slopes`` C (d, K), ``rest`` (rows, K) of G.

    By Stein's lemma C → Σᵢ E[σ′(w·zᵢ)] zᵢ rᵢᵀ as the width grows: its columns lie in the span of
    the features. ``rest`` is the remainder of G on the units used for moments. Its mean and first
    moment are 0 by construction, so its Hermite moments need no correction.
    """

    intercept: FloatArray
    slopes: FloatArray
    rest: FloatArray

    def span(self, count: int) -> FloatArray:
        """Return up to ``count`` orthonormal directions (·, d) that contain most of C.

        They span the features if these have distinct labels and are fewer than the classes.
        """
        left, _, _ = np.linalg.svd(self.slopes, full_matrices=False)
        return left[:, :count].T


def first_order(
    head: Head, gradient: FloatArray, weights: FloatArray | None = None
) -> HeadRegression:
    """Regress ``gradient`` (m, K) on the hidden weights, a constant and the biases.

    ``weights`` (m, K) are the weights of the entries if a defence removed some. Each output then
    has its own regression, and the remainder of an entry has the same weight. Memory: at most one
    more copy of W, or two with weights.
    """
    rows = head.moment_rows
    design = _design(head)
    observed, dimension = gradient[rows], head.dimension
    if weights is None:
        found = _solved(design.T @ design, design.T @ observed)
        return HeadRegression(found[dimension], found[:dimension], observed - design @ found)
    counted, columns = weights[rows], list[FloatArray]()
    for k in range(observed.shape[1]):
        weighed = design.T * counted[:, k]
        columns.append(_solved(weighed @ design, weighed @ observed[:, k]))
    found = np.stack(columns, axis=1)
    rest = counted * (observed - design @ found)
    return HeadRegression(found[dimension], found[:dimension], rest)


def _solved(gram: FloatArray, right: FloatArray) -> FloatArray:
    gram[np.diag_indices_from(gram)] += _RIDGE * np.trace(gram) / len(gram)
    return np.asarray(np.linalg.solve(gram, right), dtype=np.float64)


def _design(head: Head) -> FloatArray:
    rows = head.moment_rows
    columns = [head.weights[rows], np.ones((int(rows.sum()), 1))]
    if head.offsets is not None and np.ptp(head.offsets) > 0:
        columns.append(head.offsets[rows, None])
    return np.concatenate(columns, axis=1)


LONGEST = 30.0
"""The largest norm of a start, in units in which the hidden weights have mean square 1."""
_PRESENT = 0.1
_START_ROUNDS = 4


def class_starts(head: Head, order: HeadRegression, labels: Array, unit: float) -> FloatArray:
    """Return a start (B, d) for each label: the mean feature of its class, to first order.

    With rᵢ = (p̄ − e_y)/B the slopes are C ≈ E[σ′]/B · (z p̄ᵀ − M), where z is the sum of all
    features and column k of M the sum over class k. Absent classes have M = 0 and therefore
    determine z. Present ones have a low weight there, as if all features were alike. The mean
    prediction p̄ and E[σ′] are those of the head at the last starts. ``unit`` converts the slopes
    to the summed loss.
    """
    outputs = order.slopes.shape[1]
    counts = np.bincount(labels, minlength=outputs).astype(np.float64)
    weights = np.where(counts == 0, 1.0, _PRESENT)
    slopes = order.slopes * unit
    starts = _capped(-2.0 * slopes[:, labels].T / counts[labels, None])
    for _ in range(_START_ROUNDS):
        values, steps = head.hidden(starts)
        shares = head.residuals(values, labels, outputs).mean(axis=0) + counts / len(labels)
        lifted = slopes / max(float(steps.mean()), 0.05)
        excess = shares - counts / len(labels)
        total = lifted @ (weights * excess) / max(float(weights @ excess**2), 1e-12)
        sums = total[:, None] * shares - lifted
        starts = _capped(sums[:, labels].T / counts[labels, None])
    return starts


def scattered(starts: FloatArray, spread: float, rng: np.random.Generator) -> FloatArray:
    """Return ``starts`` (B, d), each moved randomly by ``spread`` times its own norm."""
    lengths = np.maximum(np.linalg.norm(starts, axis=1, keepdims=True), 0.1)
    noise = rng.standard_normal(starts.shape) / np.sqrt(starts.shape[1])
    moved: FloatArray = starts + spread * lengths * noise
    return moved


def _capped(starts: FloatArray) -> FloatArray:
    lengths = np.linalg.norm(starts, axis=1, keepdims=True)
    capped: FloatArray = starts * np.minimum(1.0, LONGEST / np.maximum(lengths, 1e-300))
    return capped


_NORMS = np.geomspace(0.1, 12.0, 25)
_DIRECTIONS = 16


def label_guesses(
    head: Head,
    order: HeadRegression,
    gradient: FloatArray,
    count: int,
    *,
    bias_gradient: FloatArray | None,
    rng: np.random.Generator,
) -> list[Array]:
    """Return different lists of ``count`` class indices that may explain ``gradient`` (m, K).

    The gradient of the output bias is p̄ − (share of each class). If it was not released, the mean
    over the hidden units, divided by their mean activation, replaces it. This mean and the mean
    prediction p̄ depend on the features' norm, which is unknown too. So there is one guess for each
    of many norms, computed with random features of that norm.
    """
    directions = rng.standard_normal((_DIRECTIONS, head.dimension))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    # If activations average to 0, use the share of each class in the first order instead.
    guesses = [np.linalg.norm(order.slopes, axis=0)]
    for norm in _NORMS:
        values, _ = head.hidden(norm * directions)
        level = float(values.mean())
        shares = _mean_prediction(head, values, gradient.shape[1])
        if bias_gradient is not None:
            guesses.append(count * (shares - bias_gradient))
        elif abs(level) > 0.05 * float(np.sqrt(np.mean(values**2))):
            guesses.append(count * (shares - gradient.mean(axis=0) / level))
    different = {tuple(_dealt(counts, count)): None for counts in guesses}
    return [np.array(labels, dtype=np.intp) for labels in different]


def _mean_prediction(head: Head, values: FloatArray, outputs: int) -> FloatArray:
    from scipy.special import softmax

    scores = head.scores(values)
    if scores is None:
        return np.full(outputs, 1.0 / outputs)
    return np.asarray(softmax(scores, axis=1).mean(axis=0))


def _dealt(counts: FloatArray, total: int) -> list[int]:
    """Assign ``total`` records to the classes, each to the class with the largest count left."""
    left = np.array(counts, dtype=np.float64)
    chosen = []
    for _ in range(total):
        largest = int(np.argmax(left))
        chosen.append(largest)
        left[largest] -= 1.0
    return sorted(chosen)
