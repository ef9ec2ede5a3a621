"""Label counts as a linear function of the last layer's gradient, fitted on own records."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import nn
from torch.func import functional_call

from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.training.gradient import GradientStep, public_parameters

_RECORDS = 800
_RIDGES = 10.0 ** np.arange(-8.0, 1.0)


def fitted_counts(
    step: GradientStep,
    gradients: Mapping[str, Array],
    knowledge: Knowledge,
    total: int,
    rng: np.random.Generator,
) -> tuple[FloatArray, FloatArray]:
    """Return the count of each class in a batch of ``total``, with its deviation (classes,).

    Ridge regression of one-hot labels on the last layer's gradients of single records. The
    leave-one-out error chooses its strength and gives the deviation.
    """
    names = list(step.network.parameter_shapes())[-2:]
    last = step.network.module().get_submodule(names[-1].rpartition(".")[0])
    if knowledge.shadow_targets is None or not isinstance(last, nn.Linear):
        # Only a layer shows its inputs, and those of noise differ from real ones; the outputs of
        # the last layer still help.
        names = names[-1:]
    seen = [np.asarray(gradients[n], dtype=np.float64) for n in names if n in gradients]
    x, y = _own_records(step, knowledge, rng)
    single = _gradients_each(step, knowledge, x, y, with_weight=len(seen) == 2)
    observed = np.concatenate([part.reshape(-1) for part in seen])
    truth = np.eye(len(step.classes or ()))[y]
    size = np.sqrt(np.mean(single**2, axis=0)) + 1e-12
    return _read(single / size, truth, observed / size, total)


def _read(
    single: FloatArray, truth: FloatArray, observed: FloatArray, total: int
) -> tuple[FloatArray, FloatArray]:
    centre, level = single.mean(axis=0), truth.mean(axis=0)
    rows, wanted = single - centre, truth - level
    values, vectors = np.linalg.eigh(rows @ rows.T)
    values = np.maximum(values, 0.0)
    turned, query = vectors.T @ wanted, vectors.T @ (rows @ (observed - centre))
    best: tuple[float, FloatArray, FloatArray] | None = None
    for ridge in _RIDGES * max(float(values[-1]), 1e-300):
        shrunk = 1.0 / (values + ridge)
        hat = np.einsum("ik,k,ik->i", vectors, values * shrunk, vectors)
        fit = vectors @ ((values * shrunk)[:, None] * turned)
        left_out = (wanted - fit) / np.maximum(1.0 - hat, 1e-9)[:, None]
        error = np.mean(left_out**2, axis=0)
        if best is None or float(error.sum()) < best[0]:
            found = level + (query * shrunk) @ turned
            best = (float(error.sum()), total * found, np.sqrt(total * error))
    assert best is not None
    return best[1], best[2]


def _gradients_each(
    step: GradientStep, knowledge: Knowledge, x: FloatArray, y: Array, *, with_weight: bool
) -> FloatArray:
    """Return the last layer's gradient of each record (n, classes · (inputs + 1))."""
    parameters = public_parameters(knowledge)
    if parameters is None:
        raise InputError("the parameters at which the gradient was taken are not known")
    objective = step.objective("float64")
    last = objective.module.get_submodule(list(objective.shapes)[-1].rpartition(".")[0])
    caught: list[torch.Tensor] = []

    def note(_: nn.Module, inputs: tuple[torch.Tensor, ...], __: torch.Tensor) -> None:
        caught.append(inputs[0])

    handle = last.register_forward_hook(note)
    try:
        with torch.no_grad():
            named = objective.unpack(objective.flat(parameters))
            scores = functional_call(objective.module, named, (objective.tensor(x),))
    finally:
        handle.remove()
    signal = torch.softmax(scores, dim=1) - torch.eye(scores.shape[1], dtype=scores.dtype)[y]
    if not with_weight:
        return np.asarray(signal.numpy())
    weight = (signal[:, :, None] * caught[0].flatten(1)[:, None, :]).flatten(1)
    return np.asarray(torch.cat([weight, signal], dim=1).numpy())


def _own_records(
    step: GradientStep, knowledge: Knowledge, rng: np.random.Generator
) -> tuple[FloatArray, Array]:
    """Return records (n, *record shape) and their class indices (n,), true or random."""
    pool, classes = knowledge.shadow_targets, len(step.classes or ())
    if pool is None or not len(pool):
        low, high = knowledge.value_range or (-1.0, 1.0)
        x = rng.uniform(low, high, (_RECORDS // 2, *knowledge.record_shape))
        return x, rng.integers(0, classes, len(x))
    chosen = np.sort(rng.permutation(len(pool))[:_RECORDS])
    x = np.asarray(pool.x[chosen], dtype=np.float64)
    if pool.y is None:
        return x, rng.integers(0, classes, len(x))
    return x, step.responses(pool.y[chosen])
