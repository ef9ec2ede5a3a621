"""Which classes a batch holds, guessed from a head's gradient: a start that the fit corrects."""

from __future__ import annotations

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.attacks.features.first_order import FirstOrder
from exhume.attacks.features.head import Head

_NORMS = np.geomspace(0.1, 12.0, 25)
_DIRECTIONS = 16


def label_guesses(
    head: Head,
    order: FirstOrder,
    gradient: FloatArray,
    count: int,
    *,
    bias_gradient: FloatArray | None,
    rng: np.random.Generator,
) -> list[Array]:
    """Return different lists of ``count`` class indices that may explain ``gradient`` (m, K).

    The gradient of the output bias is p̄ − (share of each class). Where it was not released, the
    mean over the hidden units stands for it, divided by their mean activation. That and the mean
    prediction p̄ depend on the features' norm, which is not known either: there is a guess for each
    of many norms, as random features of that norm would have it.
    """
    directions = rng.standard_normal((_DIRECTIONS, head.dimension))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    # Where activations average to 0, a class's part in the first order has to do.
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
    """Deal ``total`` records to the classes, one after the other to the largest count left."""
    left = np.array(counts, dtype=np.float64)
    chosen = []
    for _ in range(total):
        largest = int(np.argmax(left))
        chosen.append(largest)
        left[largest] -= 1.0
    return sorted(chosen)
