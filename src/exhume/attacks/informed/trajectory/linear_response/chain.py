"""A chain of dense and convolutional layers, at several parameter vectors at once.

Every layer is a matrix M (out, in + 1) on rows [a, 1]: a dense layer has one row per record, a
convolution one per position. The gradient of a record's loss in M is then Σ signalᵀ·row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from exhume.derivatives.objective import Objective
from exhume.protocol.errors import InputError


@dataclass(frozen=True, eq=False)
class LayerPass:
    """What a layer read and wrote: ``rows`` (k, n, positions, in + 1), ``scores`` (…, out).

    k numbers the parameter vectors, n the records.
    """

    rows: Tensor
    scores: Tensor


class Chain:
    """The layers of a network, each with its place in the flat vector θ (P,)."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.modules = list(_flattened(objective.module))
        layers = [id(one) for one in self.modules if _is_layer(one)]
        if len(set(layers)) < len(layers):
            raise InputError("a layer is used twice: its gradient is no single Kronecker product")
        starts, place = {}, 0
        for name, size in zip(objective.shapes, objective.sizes, strict=True):
            starts[name], place = place, place + size
        names = {id(module): name for name, module in objective.module.named_modules()}
        self._places = [
            (starts[f"{names[id(m)]}.weight"], starts[f"{names[id(m)]}.bias"], _shape(m))
            for m in self.modules
            if _is_layer(m)
        ]

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Return the shape (out, in + 1) of every layer's matrix."""
        return [shape for *_, shape in self._places]

    def matrices(self, thetas: Tensor) -> list[Tensor]:
        """Return every layer's matrix (k, out, in + 1) of vectors θ (k, P)."""
        found = []
        for weight, bias, (outputs, inputs) in self._places:
            size = outputs * (inputs - 1)
            own = thetas[:, weight : weight + size].reshape(-1, outputs, inputs - 1)
            found.append(torch.cat([own, thetas[:, bias : bias + outputs, None]], dim=2))
        return found

    def forward(self, matrices: list[Tensor], x: Tensor) -> tuple[Tensor, list[LayerPass]]:
        """Return the scores (k, n, outputs) of records ``x`` (n, *shape), and what layers saw."""
        count, own = len(matrices[0]), iter(matrices)
        values = x.expand(count, *x.shape)
        passes = []
        for module in self.modules:
            flat = values.reshape(-1, *values.shape[2:])
            if not _is_layer(module):
                flat = module(flat)
                values = flat.reshape(count, len(x), *flat.shape[1:])
                continue
            rows = _with_ones(_rows(module, flat)).reshape(count, len(x), -1, _shape(module)[1])
            scores = _applied(next(own), rows)
            passes.append(LayerPass(rows, scores))
            values = _as_written(module, flat, scores)
        return values, passes


def unchained(objective: Objective) -> str | None:
    """Return why a network is not a chain of layers with Kronecker factors, or None."""
    try:
        chain = Chain(objective)
        shape = objective.network.record_shape
        x = torch.linspace(0.1, 0.9, 2 * torch.Size(shape).numel(), dtype=objective.dtype)
        theta = torch.linspace(-0.1, 0.1, objective.size, dtype=objective.dtype)
        x = x.reshape(2, *shape)
        with torch.no_grad():
            scores, _ = chain.forward(chain.matrices(theta[None]), x)
            expected = objective.scores(theta, x)
    except (InputError, KeyError, RuntimeError) as error:
        return str(error) if isinstance(error, InputError) else _NO_CHAIN
    if scores.shape[1:] == expected.shape and torch.allclose(scores[0], expected, atol=1e-4):
        return None
    return _NO_CHAIN


_NO_CHAIN = "the network is not a plain chain of dense and convolutional layers"


def _flattened(module: nn.Module) -> Iterator[nn.Module]:
    if isinstance(module, nn.Sequential):
        for one in module:
            yield from _flattened(one)
        return
    if not _is_layer(module) and any(True for _ in module.parameters()):
        raise InputError(_NO_CHAIN)
    plain = not _is_convolution(module) or (
        module.groups == 1 and module.padding_mode == "zeros" and module.padding not in _NAMED
    )
    if _is_layer(module) and (module.bias is None or not plain):
        raise InputError("a layer has no bias, groups or padding other than zeros")
    yield module


_NAMED = ("same", "valid")


def _is_convolution(module: nn.Module) -> bool:
    return isinstance(module, nn.Conv2d)


def _is_layer(module: nn.Module) -> bool:
    return isinstance(module, nn.Conv2d | nn.Linear)


def _shape(module: nn.Module) -> tuple[int, int]:
    weight = module.weight
    assert isinstance(weight, Tensor)
    return len(weight), weight[0].numel() + 1


def _rows(module: nn.Module, values: Tensor) -> Tensor:
    """Return what the matrix multiplies: (n, positions, in)."""
    if not isinstance(module, nn.Conv2d):
        return values[:, None]
    found = nn.functional.unfold(
        values,
        module.kernel_size,
        dilation=module.dilation,
        padding=module.padding,  # type: ignore[arg-type]
        stride=module.stride,
    )
    return found.transpose(1, 2)


def _with_ones(rows: Tensor) -> Tensor:
    return torch.cat([rows, rows.new_ones(*rows.shape[:-1], 1)], dim=-1)


def _applied(matrix: Tensor, rows: Tensor) -> Tensor:
    """Return rows (k, n, positions, in) times matrices (k, out, in), transposed."""
    flat = rows.reshape(len(rows), -1, rows.shape[-1])
    return torch.bmm(flat, matrix.transpose(1, 2)).reshape(*rows.shape[:-1], -1)


def _as_written(module: nn.Module, values: Tensor, scores: Tensor) -> Tensor:
    """Return scores as the layer does: (k, n, out), of a convolution (k, n, out, height, width)."""
    if not isinstance(module, nn.Conv2d):
        return scores[:, :, 0]
    assert not isinstance(module.padding, str)
    sides = [
        (size + 2 * pad - gap * (kernel - 1) - 1) // step + 1
        for size, pad, gap, kernel, step in zip(
            values.shape[-2:],
            module.padding,
            module.dilation,
            module.kernel_size,
            module.stride,
            strict=True,
        )
    ]
    return scores.transpose(2, 3).reshape(*scores.shape[:2], -1, *sides)
