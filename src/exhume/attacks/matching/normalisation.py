"""Which mode batch normalisation was in, told from a gradient alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from exhume.arrays import FloatArray
from exhume.attacks.matching.reading import Reading
from exhume.models.base import Network
from exhume.training.gradient import Aggregate, GradientStep

INVARIANT, FREE = 0.1, 0.4
"""Below and above these parts of what independent directions have, radial parts tell the mode."""


@dataclass(frozen=True)
class Mode:
    """The mode that a gradient speaks for, and the radial part it was told by.

    ``radial`` is Σ⟨w, g⟩² over Σ‖w‖²‖g‖²/d, its root: 1 for gradients g with no relation to the
    weights w of their filters, about 0 where filters' lengths do not matter.
    """

    batch_norm: Literal["train", "eval"]
    radial: float


def normalisation_mode(reading: Reading) -> Mode | None:
    """Return the mode that batch normalisation was in, None where the release does not tell.

    Normalised by the batch's own statistics, a filter's outputs do not depend on its length: its
    gradient has no part along the filter. With running statistics it has. Only a single gradient
    without a defence tells.
    """
    mechanism = reading.mechanism
    step = mechanism.client if isinstance(mechanism, Aggregate) else mechanism
    if not isinstance(step, GradientStep) or reading.knowledge.training is not mechanism:
        return None
    dots, sizes = 0.0, 0.0
    for name in normalised_layers(step.network):
        if name not in reading.arrays:
            continue
        gradient = _rows(reading.arrays[name])
        weights = _rows(np.asarray(reading.parameters[name], dtype=np.float64))
        unit = math.sqrt(float(np.square(gradient).sum())) or 1.0
        along = ((weights * gradient) / unit).sum(axis=1)
        lengths = np.square(weights).sum(axis=1) * np.square(gradient / unit).sum(axis=1)
        dots += float(np.square(along).sum())
        sizes += float(lengths.sum()) / weights.shape[1]
    if not sizes > 0:
        return None
    radial = math.sqrt(dots / sizes)
    if INVARIANT < radial < FREE:
        return None
    return Mode("train" if radial <= INVARIANT else "eval", radial)


def normalised_layers(network: Network) -> tuple[str, ...]:
    """Return the weights of layers whose outputs go straight, and only, into a normalisation."""
    module = network.module().eval()
    made: dict[int, tuple[str, Tensor]] = {}
    taken: list[str] = []
    hooks = []

    def note(name: str) -> None:
        def output(_: nn.Module, __: tuple[Tensor, ...], result: Tensor) -> None:
            made[id(result)] = name, result

        hooks.append(module.get_submodule(name).register_forward_hook(output))

    def watch(layer: nn.Module) -> None:
        def enter(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            found = made.get(id(inputs[0]))
            if found is not None:
                taken.append(f"{found[0]}.weight")

        hooks.append(layer.register_forward_pre_hook(enter))

    for name, layer in module.named_modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            note(name)
        elif isinstance(layer, nn.modules.batchnorm._BatchNorm):
            watch(layer)
    dtype = next((p.dtype for p in module.parameters()), torch.float32)
    with torch.no_grad():
        module(torch.zeros((2, *network.record_shape), dtype=dtype))
    for hook in hooks:
        hook.remove()
    return tuple(taken)


def _rows(weights: FloatArray) -> FloatArray:
    return weights.reshape(len(weights), -1)
