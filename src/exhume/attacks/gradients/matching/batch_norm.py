"""The mode of batch normalisation, inferred from a gradient alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from exhume.attacks.gradients.matching.problem import MatchableRelease
from exhume.models.base import Network
from exhume.protocol.arrays import FloatArray
from exhume.training.gradient import GradientStep
from exhume.training.local_steps import Aggregate

INVARIANT, FREE = 0.1, 0.4
"""Radial parts below and above these, relative to independent directions, decide the mode."""


@dataclass(frozen=True)
class Mode:
    """The mode that a gradient indicates, and the radial part behind that decision.

    ``radial`` is the square root of Σ⟨w, g⟩² over Σ‖w‖²‖g‖²/d. It is 1 for gradients g that are
    unrelated to the weights w of their filters, and about 0 if the filters' norms do not matter.
    """

    batch_norm: Literal["train", "eval"]
    radial: float


def normalisation_mode(reading: MatchableRelease) -> Mode | None:
    """Return the mode of batch normalisation, or None if the release does not show it.

    With the batch's own statistics, a filter's outputs do not depend on its norm, so its gradient
    has no component along the filter. With running statistics it has one. Only a single gradient
    without a defence shows this.
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
    """Return the weights of layers whose outputs go directly and only into a normalisation."""
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
