"""The stationarity condition at given records, with the multipliers that suit them best."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls
from scipy.special import expit, softmax

from exhume.arrays import Array, FloatArray
from exhume.attacks.kkt.network import HiddenLayer
from exhume.errors import InputError


@dataclass(frozen=True, eq=False)
class Fit:
    """Non-negative multipliers (n,) and what they leave: ‖θ − Σ λ∇f‖² / ‖θ‖².

    ``contributions`` (n,) is how much the residual would grow without each record, the others'
    multipliers adapting: 0 for a record that is not needed.
    """

    multipliers: FloatArray
    residual: float
    contributions: FloatArray


def fitted(network: HiddenLayer, records: Array, classes: Array, *, slope: float = 50.0) -> Fit:
    """Fit multipliers to records (n, *shape), ``classes`` (n,) being class indices.

    The same question can be put to the training records and to a reconstruction: which of them
    explains the weights better says nothing about which of them is real (Runkel et al. 2024).
    """
    x = np.asarray(records, dtype=np.float64).reshape(len(records), -1) - network.centre
    if len(classes) != len(x):
        raise InputError(f"{len(x)} records need as many classes, got {len(classes)}")
    x = np.column_stack([x, np.ones(len(x))])
    inside = x @ network.first.T
    directions = class_directions(network, inside, classes)
    back = expit(slope * inside) * (directions @ network.output)
    lit = np.maximum(inside, 0.0)
    alike = directions @ directions.T
    gram = (back @ back.T) * (x @ x.T) + alike * (lit @ lit.T)
    right = (back * inside).sum(axis=1) + (directions * (lit @ network.output.T)).sum(axis=1)
    size = float(np.square(network.first).sum() + np.square(network.output).sum())
    if network.output_bias is not None:
        gram = gram + alike
        right = right + directions @ network.output_bias
        size += float(np.square(network.output_bias).sum())
    return _solved(gram, right, size)


def class_directions(network: HiddenLayer, inside: FloatArray, classes: Array) -> FloatArray:
    """Return the sign, or the class against its competitors, (n, outputs)."""
    if len(network.output) == 1:
        return np.asarray((2.0 * np.asarray(classes, dtype=np.float64) - 1.0)[:, None])
    scores = np.maximum(inside, 0.0) @ network.output.T
    if network.output_bias is not None:
        scores = scores + network.output_bias
    own = np.eye(len(network.output))[np.asarray(classes)]
    return np.asarray(own - softmax(scores - 1e9 * own, axis=1))


def _solved(gram: FloatArray, right: FloatArray, size: float) -> Fit:
    """Minimise λᵀGλ − 2λᵀr over λ ≥ 0 through a square root of G."""
    values, vectors = np.linalg.eigh(gram)
    floor = 1e-10 * max(float(values[-1]), 1e-300)
    root = np.sqrt(np.maximum(values, floor))
    multipliers, _ = nnls((vectors * root).T, (vectors.T @ right) / root)
    left = size - 2.0 * multipliers @ right + multipliers @ gram @ multipliers
    active = np.flatnonzero(multipliers > 0)
    contributions = np.zeros(len(right))
    if len(active):
        part = gram[np.ix_(active, active)] + floor * np.eye(len(active))
        spread = np.diag(np.linalg.inv(part))
        contributions[active] = multipliers[active] ** 2 / np.maximum(spread, 1e-300) / size
    return Fit(np.asarray(multipliers), float(left / size), contributions)
