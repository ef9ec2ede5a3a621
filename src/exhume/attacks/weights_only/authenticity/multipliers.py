"""The stationarity condition at given records, with the best-fitting multipliers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls
from scipy.special import expit

from exhume.attacks.weights_only.read_weights import GeneralNetwork, HiddenLayer, Released
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.errors import InputError


@dataclass(frozen=True, eq=False)
class MultiplierFit:
    """Non-negative multipliers (n,) and their relative residual ‖θ − Σ λ∇f‖² / ‖θ‖².

    ``contributions`` (n,) is the growth of the residual without each record, after the other
    multipliers adapt: 0 for a record that is not needed.
    """

    multipliers: FloatArray
    residual: float
    contributions: FloatArray


def fitted(
    network: Released, records: Array, classes: Array, *, slope: float = 50.0
) -> MultiplierFit:
    """Fit multipliers to records (n, *shape) with class indices ``classes`` (n,).

    The fit applies to the training records and to a reconstruction alike. Which of them explains
    the weights better says nothing about which of them is real (Runkel et al. 2024).
    """
    if len(classes) != len(records):
        raise InputError(f"{len(records)} records need as many classes, got {len(classes)}")
    x = np.asarray(records, dtype=np.float64).reshape(len(records), -1)
    if isinstance(network, HiddenLayer):
        return _solved(*_written_out(network, x - network.centre, classes, slope))
    rows, theta = _differentiated(network, x - network.subtracted, classes, slope)
    return _solved(rows @ rows.T, rows @ theta, float(theta @ theta))


def _differentiated(
    network: GeneralNetwork, x: FloatArray, classes: Array, slope: float
) -> tuple[FloatArray, FloatArray]:
    """Return ∇f of each record (n, P), by automatic differentiation, and θ (P,)."""
    import torch

    from exhume.attacks.weights_only.stationarity import class_directions
    from exhume.attacks.weights_only.stationarity_autograd import SmoothSlopes
    from exhume.derivatives.objective import Objective

    objective = Objective(network.network, dtype=torch.float64, batch_norm="eval")
    theta = objective.flat(network.parameters).requires_grad_()
    inputs = torch.tensor(x.reshape(len(x), *network.network.record_shape))
    rows = []
    for one, kind in zip(inputs, np.asarray(classes).tolist(), strict=True):
        with SmoothSlopes(torch.tensor(slope, dtype=torch.float64)):
            scores = objective.scores(theta, one[None])
        direction = class_directions(scores.detach(), torch.tensor([kind]))
        (row,) = torch.autograd.grad((direction * scores).sum(), theta)
        rows.append(row.numpy())
    return np.array(rows).reshape(len(x), -1), theta.detach().numpy()


def _written_out(
    network: HiddenLayer, x: FloatArray, classes: Array, slope: float
) -> tuple[FloatArray, FloatArray, float]:
    """Return ∇f·∇f (n, n), ∇f·θ (n,) and ‖θ‖² of centred records, layer by layer."""
    import torch

    from exhume.attacks.weights_only.stationarity import class_directions

    x = np.column_stack([x, np.ones(len(x))])
    inside = x @ network.first.T
    lit = np.maximum(inside, 0.0)
    bias = 0.0 if network.output_bias is None else network.output_bias
    scores = torch.tensor(lit @ network.output.T + bias)
    directions = class_directions(scores, torch.tensor(np.asarray(classes))).numpy()
    back = expit(slope * inside) * (directions @ network.output)
    alike = directions @ directions.T
    gram = (back @ back.T) * (x @ x.T) + alike * (lit @ lit.T)
    right = (back * inside).sum(axis=1) + (directions * (lit @ network.output.T)).sum(axis=1)
    size = float(np.square(network.first).sum() + np.square(network.output).sum())
    if network.output_bias is not None:
        gram = gram + alike
        right = right + directions @ network.output_bias
        size += float(np.square(network.output_bias).sum())
    return gram, right, size


def _solved(gram: FloatArray, right: FloatArray, size: float) -> MultiplierFit:
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
    return MultiplierFit(np.asarray(multipliers), float(left / size), contributions)
