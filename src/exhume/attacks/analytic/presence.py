"""Which classes a batch must have: rows of the last layer's gradient that turn negative."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.defences import Defence
from exhume.knowledge import Knowledge
from exhume.training.gradient import GradientStep

_ROUNDING = 1e-5
"""How far below 0 an entry must lie, in parts of the largest."""


def present_classes(
    step: GradientStep, gradients: Mapping[str, Array], knowledge: Knowledge
) -> Array | None:
    """Return which classes (classes,) have a record in the batch; None where that can't be told.

    The row of class k is Σᵢ (pᵢₖ − [yᵢ = k]) hᵢ/n. Where nothing below 0 enters the layer, h ≥ 0,
    a class without a record has no negative entry (Yin et al. 2021): one that has is in the batch
    for certain, one that has not is taken to be absent. Noise of a defence would spoil that.
    """
    names = list(step.network.parameter_shapes())[-2:]
    if isinstance(knowledge.training, Defence) or any(n not in gradients for n in names):
        return None
    weight, bias = (np.asarray(gradients[n], dtype=np.float64) for n in names)
    if weight.ndim != 2 or len(weight) != step.network.outputs or bias.shape != (len(weight),):
        return None
    if not _nonnegative(step, names[0].removesuffix(".weight")):
        return None
    rows: FloatArray = np.concatenate([weight, bias[:, None]], axis=1)
    # An entry's size is that of its column: features differ by orders of magnitude.
    sizes = np.abs(rows).max(axis=0)
    alive = sizes > 1e-6 * sizes.max(initial=0.0)
    if not alive.any():
        return None
    present = (rows[:, alive] < -_ROUNDING * sizes[alive]).any(axis=1)
    return np.asarray(present)


def _nonnegative(step: GradientStep, layer: str) -> bool:
    """Tell whether what enters ``layer`` can't be negative: a rectifier or a sigmoid is before it.

    Believed where random records give no negative number, and some positive ones.
    """
    import torch
    from torch import nn

    module = step.network.module().train()
    last = module.get_submodule(layer)
    if not isinstance(last, nn.Linear):
        return False
    entered: list[torch.Tensor] = []
    hook = last.register_forward_pre_hook(lambda _, inputs: entered.append(inputs[0]))
    drawn = np.random.default_rng(0).normal(size=(16, *step.network.record_shape))
    dtype = next(module.parameters()).dtype
    with torch.no_grad():
        module(torch.tensor(drawn, dtype=dtype))
    hook.remove()
    if len(entered) != 1:
        return False
    return bool((entered[0] >= 0).all()) and bool((entered[0] > 0).any())
