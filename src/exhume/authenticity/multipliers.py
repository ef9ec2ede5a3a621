"""The stationarity condition at given records, with the multipliers that suit them best."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls
from scipy.special import expit, softmax

from exhume.arrays import Array, FloatArray
from exhume.attacks.kkt.general import General, Released
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


def fitted(network: Released, records: Array, classes: Array, *, slope: float = 50.0) -> Fit:
    """Fit multipliers to records (n, *shape), ``classes`` (n,) being class indices.

    The same question can be put to the training records and to a reconstruction: which of them
    explains the weights better says nothing about which of them is real (Runkel et al. 2024).
    """
    if len(classes) != len(records):
        raise InputError(f"{len(records)} records need as many classes, got {len(classes)}")
    x = np.asarray(records, dtype=np.float64).reshape(len(records), -1)
    if isinstance(network, HiddenLayer):
        return _solved(*_written_out(network, x - network.centre, classes, slope))
    rows, theta = _differentiated(network, x - network.subtracted, classes, slope)
    return _solved(rows @ rows.T, rows @ theta, float(theta @ theta))


def _differentiated(
    network: General, x: FloatArray, classes: Array, slope: float
) -> tuple[FloatArray, FloatArray]:
    """Return ∇f of each record (n, P), by automatic differentiation, and θ (P,)."""
    import torch

    from exhume.attacks.kkt.autograd import SmoothSlopes
    from exhume.attacks.kkt.objective import class_directions as against_others
    from exhume.training.objective import Objective

    objective = Objective(network.network, dtype=torch.float64, batch_norm="eval")
    theta = objective.flat(network.parameters).requires_grad_()
    inputs = torch.tensor(x.reshape(len(x), *network.network.record_shape))
    rows = []
    for one, kind in zip(inputs, np.asarray(classes).tolist(), strict=True):
        with SmoothSlopes(torch.tensor(slope, dtype=torch.float64)):
            scores = objective.scores(theta, one[None])
        direction = against_others(scores.detach(), torch.tensor([kind]))
        (row,) = torch.autograd.grad((direction * scores).sum(), theta)
        rows.append(row.numpy())
    return np.array(rows).reshape(len(x), -1), theta.detach().numpy()


def _written_out(
    network: HiddenLayer, x: FloatArray, classes: Array, slope: float
) -> tuple[FloatArray, FloatArray, float]:
    """Return ∇f·∇f (n, n), ∇f·θ (n,) and ‖θ‖² of centred records, layer by layer."""
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
    return gram, right, size


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
