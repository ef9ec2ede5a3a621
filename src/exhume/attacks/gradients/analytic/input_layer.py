"""The network's first layer, and the adversary's own forward and backward passes through it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from exhume.models.base import Network
from exhume.models.exported import is_bare, without_layers
from exhume.protocol.arrays import Array, FloatArray
from exhume.training.gradient import GradientStep


@dataclass(frozen=True, eq=False)
class InputLayer:
    """A fully connected layer that sees the whole record: W (scale · x + offset) + bias.

    ``rectified`` says whether a ReLU follows, so that no error returns to a neuron below zero.
    """

    weight: str
    bias: str | None
    width: int
    scale: FloatArray
    offset: FloatArray
    rectified: bool

    def records(self, inputs: FloatArray) -> FloatArray:
        """Return the records (n, d) of the layer's inputs (n, d)."""
        return (inputs - self.offset) / self.scale

    def inputs(self, records: FloatArray) -> FloatArray:
        """Return the layer's inputs (n, d) for records (n, *record shape)."""
        return records.reshape(len(records), -1) * self.scale + self.offset


@lru_cache(maxsize=32)
def input_layer_of(network: Network) -> InputLayer | str:
    """Return the layer that sees whole records, or why there is none."""
    module = network.module().double().eval()
    found = _first_with_parameters(module)
    if is_bare(found[1]) and (unseen := without_layers(network)) is not None:
        return unseen
    if not isinstance(found[1], nn.Linear):
        return (
            f"the first layer of {network.describe()} is {type(found[1]).__name__}, "
            "but only a fully connected one sees a whole record at once"
        )
    name, layer = found[0], found[1]
    size = math.prod(network.record_shape)
    if layer.in_features != size:
        return f"the first layer has {layer.in_features} inputs, a record has {size} values"
    if _used_again(module, layer, network.record_shape):
        return "the network uses the first layer's weights again: their gradient sums all uses"
    affine = _entrance(module, layer, network.record_shape)
    if affine is None:
        return "the input of the first layer is not a rescaled record"
    return InputLayer(
        weight=f"{name}.weight",
        bias=None if layer.bias is None else f"{name}.bias",
        width=layer.out_features,
        scale=affine[0],
        offset=affine[1],
        rectified=_rectified(module, layer),
    )


class Backward:
    """The errors that reach the first layer from records chosen by the adversary."""

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
        """Return ∂loss/∂preactivation (n, classes, width), one per possible label.

        The error of a regression is unknown, but only a factor: its output has one direction.
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
        """Return the probability (n, classes) that the network gives each label."""
        scores, _ = self._forward(records)
        return np.asarray(torch.softmax(scores.detach(), dim=1).numpy())

    def _forward(self, records: FloatArray) -> tuple[Tensor, Tensor]:
        caught: list[Tensor] = []

        def leaf(_: nn.Module, __: tuple[Tensor, ...], output: Tensor) -> Tensor:
            caught.append(output.detach().requires_grad_(True))
            return caught[-1].clone()

        handle = self._layer.register_forward_hook(leaf)
        try:
            x = self.objective.tensor(records)
            scores = functional_call(self.objective.module, self._parameters, (x,))
        finally:
            handle.remove()
        return scores, caught[0]


def _used_again(module: nn.Module, layer: nn.Linear, shape: tuple[int, ...]) -> bool:
    """Whether the scores depend on the layer's weights in other ways than by its one output."""
    calls: list[Tensor] = []

    def cut(_: nn.Module, __: tuple[Tensor, ...], output: Tensor) -> Tensor:
        calls.append(output)
        # A copy, since what follows may change it in place, which a leaf refuses.
        return output.detach().requires_grad_(True).clone()

    handle = layer.register_forward_hook(cut)
    try:
        scores = module(torch.tensor(np.random.default_rng(0).random((2, *shape))))
    finally:
        handle.remove()
    again = torch.autograd.grad(scores.sum(), [layer.weight], materialize_grads=True)[0]
    return len(calls) != 1 or bool((again != 0).any())


def decides(module: nn.Module, layer: nn.Module, shape: tuple[int, ...]) -> bool:
    """Whether the layer's inputs alone determine the scores."""
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
    """Return (scale, offset) of the layer's input, or None if it does not have that form."""
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
    """Whether a ReLU follows the layer directly."""
    order = [m for m in module.modules() if not list(m.children())]
    after = order[order.index(layer) + 1 :]
    return bool(after) and isinstance(after[0], nn.ReLU)


def _entering(module: nn.Module, layer: nn.Module, x: Tensor) -> FloatArray | None:
    """Return the layer's input, or None if the layer is not used exactly once."""
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
