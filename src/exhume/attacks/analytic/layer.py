"""The network's first layer, and what would come back to it: the adversary's own forward passes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from exhume.arrays import Array, FloatArray
from exhume.models.base import Network
from exhume.training.gradient import GradientStep


@dataclass(frozen=True, eq=False)
class InputLayer:
    """A fully connected layer that sees the whole record: W (scale · x + offset) + bias.

    ``rectified`` tells whether a ReLU follows, so that nothing comes back to a neuron below zero.
    """

    weight: str
    bias: str | None
    width: int
    scale: FloatArray
    offset: FloatArray
    rectified: bool

    def records(self, inputs: FloatArray) -> FloatArray:
        """Return the records (n, d) behind the layer's inputs (n, d)."""
        return (inputs - self.offset) / self.scale

    def inputs(self, records: FloatArray) -> FloatArray:
        """Return the layer's inputs (n, d) for records (n, *record shape)."""
        return records.reshape(len(records), -1) * self.scale + self.offset


@lru_cache(maxsize=32)
def input_layer(network: Network) -> InputLayer | str:
    """Return the layer that sees whole records, or the reason why there is none."""
    module = network.module().double().eval()
    found = _first_with_parameters(module)
    if not isinstance(found[1], nn.Linear):
        return (
            f"the first layer of {network.describe()} is {type(found[1]).__name__}, "
            "and only a fully connected one sees a whole record at once"
        )
    name, layer = found[0], found[1]
    size = math.prod(network.record_shape)
    if layer.in_features != size:
        return f"the first layer takes {layer.in_features} numbers, a record has {size}"
    affine = _entrance(module, layer, network.record_shape)
    if affine is None:
        return "what enters the first layer is no rescaled record"
    return InputLayer(
        weight=f"{name}.weight",
        bias=None if layer.bias is None else f"{name}.bias",
        width=layer.out_features,
        scale=affine[0],
        offset=affine[1],
        rectified=_rectified(module, layer),
    )


class Backward:
    """What comes back to the first layer from records that the adversary makes up."""

    def __init__(
        self, step: GradientStep, layer: InputLayer, parameters: Mapping[str, Array]
    ) -> None:
        self.step = step
        self.objective = step.objective("float64")
        tensors = self.objective.unpack(self.objective.flat(parameters))
        self._parameters = tensors
        self.weight = tensors[layer.weight].numpy()
        self.bias = np.zeros(layer.width) if layer.bias is None else tensors[layer.bias].numpy()
        self._layer = self.objective.module.get_submodule(layer.weight.rpartition(".")[0])

    def directions(self, records: FloatArray) -> FloatArray:
        """Return ∂loss/∂preactivation (n, classes, width), one for each label it could have.

        A regression's error is unknown, and only scales: it has one direction, that of its output.
        """
        scores, first = self._forward(records)
        slopes = [
            torch.autograd.grad(scores[:, c].sum(), first, retain_graph=True)[0]
            for c in range(scores.shape[1])
        ]
        jacobian = torch.stack(slopes, dim=1)
        if self.step.classes is None:
            return jacobian.numpy()
        chances = torch.softmax(scores.detach(), dim=1)
        mean = (chances[:, :, None] * jacobian).sum(dim=1, keepdim=True)
        return np.asarray((mean - jacobian).numpy())

    def answers(self, records: FloatArray) -> FloatArray:
        """Return the chance (n, classes) that the network gives each label."""
        scores, _ = self._forward(records)
        return np.asarray(torch.softmax(scores.detach(), dim=1).numpy())

    def _forward(self, records: FloatArray) -> tuple[Tensor, Tensor]:
        caught: list[Tensor] = []

        def leaf(_: nn.Module, __: tuple[Tensor, ...], output: Tensor) -> Tensor:
            caught.append(output.detach().requires_grad_(True))
            return caught[-1]

        handle = self._layer.register_forward_hook(leaf)
        try:
            x = self.objective.tensor(records)
            scores = functional_call(self.objective.module, self._parameters, (x,))
        finally:
            handle.remove()
        return scores, caught[0]


def decides(module: nn.Module, layer: nn.Module, shape: tuple[int, ...]) -> bool:
    """Tell whether scores are the same for other records once the layer's inputs are."""
    seen: list[Tensor] = []
    drawn = torch.tensor(np.random.default_rng(0).random((4, *shape)))

    def replaced(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        seen.append(inputs[0])
        return None if len(seen) == 1 else (seen[0],)

    handle = layer.register_forward_pre_hook(replaced)
    try:
        with torch.no_grad():
            one, other = module(drawn[:2]), module(drawn[2:])
    finally:
        handle.remove()
    return len(seen) == 2 and seen[0].ndim == 2 and bool(torch.allclose(one, other))


def _first_with_parameters(module: nn.Module) -> tuple[str, nn.Module]:
    for name, layer in module.named_modules():
        if next(layer.parameters(recurse=False), None) is not None:
            return name, layer
    return "", module


def _entrance(
    module: nn.Module, layer: nn.Module, shape: tuple[int, ...]
) -> tuple[FloatArray, FloatArray] | None:
    """Return (scale, offset) of what the layer sees, or None where it is not of that form."""
    probe = np.random.default_rng(0).random((4, *shape))
    probe[0], probe[1] = 0.0, 1.0
    seen = _entering(module, layer, torch.tensor(probe))
    if seen is None or seen.shape != (4, probe[0].size):
        return None
    offset, scale = seen[0], seen[1] - seen[0]
    expected = probe.reshape(4, -1) * scale + offset
    if np.abs(scale).min() == 0.0 or not np.allclose(seen, expected, rtol=1e-9, atol=1e-9):
        return None
    return scale, offset


def _rectified(module: nn.Module, layer: nn.Linear) -> bool:
    """Whether a ReLU is what follows the layer."""
    order = [m for m in module.modules() if not list(m.children())]
    after = order[order.index(layer) + 1 :]
    return bool(after) and isinstance(after[0], nn.ReLU)


def _entering(module: nn.Module, layer: nn.Module, x: Tensor) -> FloatArray | None:
    """Return what enters the layer, or None where it is not used exactly once."""
    caught: list[Tensor] = []

    def note(_: nn.Module, inputs: tuple[Tensor, ...], __: Tensor) -> None:
        caught.append(inputs[0])

    handle = layer.register_forward_hook(note)
    try:
        with torch.no_grad():
            module(x)
    finally:
        handle.remove()
    return np.asarray(caught[0].numpy()) if len(caught) == 1 else None
