"""Assignment of labels to rebuilt records, for attacks that give only records."""

from __future__ import annotations

from collections import Counter

import numpy as np

from exhume.attacks.gradients.matching.problem import MatchableRelease
from exhume.protocol.arrays import Array, FloatArray
from exhume.training.gradient import GradientStep


def given_labels(
    reading: MatchableRelease, records: FloatArray, own: Array | None, known: Array | None
) -> Array:
    """Return a label for each of ``records`` (n, *record shape), as the data names them.

    Labels that an attack gave (``own``, of the first records) stay. The rest come from the labels
    ``known`` of the batch; each goes to the record that fits it best by the last layer's gradient.
    """
    count = len(records)
    first = np.empty(0) if own is None else np.asarray(own)[:count]
    if len(first) == count:
        return first
    classes = reading.step.classes
    if classes is None:
        rest = np.zeros(count) if known is None else np.asarray(known)
        return np.concatenate([first, rest[len(first) : count]])
    shares = label_shares(reading, records)
    suits = np.zeros((count, len(classes))) if shares is None else shares
    if known is None:
        rest = np.asarray(classes)[suits[len(first) :].argmax(axis=1)]
    else:
        rest = _dealt(suits[len(first) :], _left(known, first), classes)
    return rest if not len(first) else np.concatenate([first, rest])


def label_shares(reading: MatchableRelease, records: FloatArray) -> FloatArray | None:
    """Return the share of each class (n, classes) in each record, by the last layer's gradient.

    That gradient is Σᵢ (pᵢ − yᵢ)[hᵢ, 1]ᵀ/n, where p are the predictions and h the inputs of the
    layer. Both follow from the records, so y is a least-squares solution. Returns None if the last
    layer is not linear, or if more than one step was taken.
    """
    import torch
    from scipy.special import softmax
    from torch import nn

    network = reading.step.network
    weight, bias = list(network.parameter_shapes())[-2:]
    layer = weight.removesuffix(".weight")
    plain = isinstance(reading.mechanism, GradientStep) and reading.count == reading.total
    if not plain or weight not in reading.arrays or bias != f"{layer}.bias":
        return None
    objective = reading.step.objective("float64")
    module = objective.module.get_submodule(layer)
    if not isinstance(module, nn.Linear) or bias not in reading.arrays:
        return None
    entered: list[FloatArray] = []
    hook = module.register_forward_pre_hook(lambda _, x: entered.append(x[0].detach().numpy()))
    with torch.no_grad():
        scores = objective.scores(objective.flat(reading.parameters), objective.tensor(records))
    hook.remove()
    answers = softmax(scores.numpy(), axis=1)
    features = np.concatenate([entered[0], np.ones((len(records), 1))], axis=1)
    seen = np.concatenate([reading.arrays[weight], reading.arrays[bias][:, None]], axis=1)
    sums = answers.T @ features - len(records) * seen
    shares: FloatArray = np.linalg.lstsq(features.T, sums.T, rcond=1e-9)[0]
    return shares


def _left(known: Array, taken: Array) -> list[object]:
    """Return the known labels without those already used."""
    left = Counter(np.asarray(known).tolist())
    left.subtract(Counter(taken.tolist()))
    return [label for label, number in left.items() for _ in range(max(0, number))]


def _dealt(suits: FloatArray, left: list[object], classes: tuple[object, ...]) -> Array:
    from scipy.optimize import linear_sum_assignment

    # There may be too few labels if an attack's own labels contradict the known ones.
    left = (left + list(np.asarray(classes)[suits.argmax(axis=1)]))[: len(suits)]
    columns = [classes.index(label) for label in left]
    _, order = linear_sum_assignment(-suits[:, columns])
    dealt: Array = np.asarray(left)[order]
    return dealt
