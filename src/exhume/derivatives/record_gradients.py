"""Records' own gradients without storing them: their norms, products and weighted sums.

If a layer multiplies its input by a matrix, a record's gradient is the product of the layer's input
and the backpropagated error (Goodfellow 2015); convolutions multiply patches. Other networks are
differentiated record by record.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from exhume.derivatives.objective import Objective

_NUMBERS_AT_ONCE = 2**26
"""The number of values of per-record gradients in memory at once: a quarter of a gigabyte."""


class RecordGradients(ABC):
    """The gradients gᵢ (P,) of the losses of n records at one θ, parameter by parameter.

    Columns are the parameters in the network's own order. Clipping per parameter needs each one's
    norm.
    """

    @property
    @abstractmethod
    def squares(self) -> Tensor:
        """Return the squared norms (n, parameters)."""

    @abstractmethod
    def along(self, direction: Tensor) -> Tensor:
        """Return the products with a direction (P,), as (n, parameters)."""

    @abstractmethod
    def weighted_sum(self, weight: Tensor) -> Tensor:
        """Return Σᵢ wᵢ gᵢ (P,) for weights (n, parameters), or (n, 1) for all alike."""

    @property
    def norms(self) -> Tensor:
        """Return ‖gᵢ‖ (n,)."""
        return self.squares.sum(dim=1).sqrt()

    def shares(self, norm: Tensor | float, weight: Tensor | None = None) -> Tensor:
        """Return the factors that scale wᵢ gᵢ down to ``norm`` if it is longer.

        One norm is that of the whole gradient: (n, 1). One norm per parameter, (parameters,), clips
        each parameter separately: (n, parameters).
        """
        limit = torch.as_tensor(norm, dtype=self.squares.dtype, device=self.squares.device)
        flat = limit.numel() == 1
        norms = self.norms[:, None] if flat else self.squares.sqrt()
        weights = torch.ones_like(norms) if weight is None else weight[:, None]
        return weights * (limit / (weights * norms).clamp_min(1e-30)).clamp_max(1.0)


def record_gradients(objective: Objective, theta: Tensor, x: Tensor, y: Tensor) -> RecordGradients:
    """Return the gradients of records ``x`` with responses ``y``, in the cheapest form."""
    layers = _factored_layers(objective.module)
    if layers is None or not len(x):
        return _OneByOne(objective, theta, x, y)
    return _factored(objective, theta, x, y, layers)


def _factored_layers(module: nn.Module) -> dict[str, nn.Module] | None:
    """Return the layers by name if they hold all parameters and each has a product form."""
    layers = {
        n: m for n, m in module.named_modules() if next(m.parameters(False), None) is not None
    }
    fits = all(
        isinstance(m, nn.Linear)
        or (isinstance(m, nn.Conv2d) and m.groups == 1 and m.padding_mode == "zeros"
            and not isinstance(m.padding, str))
        for m in layers.values()
    )  # fmt: skip
    return layers if fits and len({id(m) for m in layers.values()}) == len(layers) else None


@dataclass(frozen=True, eq=False)
class _Factor:
    """One layer: ``inputs`` (n, L, in) and ``signals`` (n, L, out) at L places; L = 1 if dense."""

    inputs: Tensor
    signals: Tensor

    def squares(self) -> Tensor:
        """Return each record's squared norm of the weight's gradient (n,)."""
        if self.inputs.shape[1] == 1:
            return self.signals.square().sum((1, 2)) * self.inputs.square().sum((1, 2))
        return (self.signals.mT @ self.inputs).square().sum((1, 2))

    def bias_squares(self) -> Tensor:
        """Return each record's squared norm of the bias's gradient (n,)."""
        return self.signals.sum(1).square().sum(1)

    def along(self, weight: Tensor) -> Tensor:
        """Return each record's product with a direction of the weight (n,)."""
        return ((self.signals @ weight.flatten(1)) * self.inputs).sum((1, 2))

    def bias_along(self, bias: Tensor) -> Tensor:
        """Return each record's product with a direction of the bias (n,)."""
        return self.signals.sum(1) @ bias

    def weighted_sum(self, share: Tensor) -> Tensor:
        """Return the weighted sum (out, in) over the records."""
        return (self.signals * share[:, None, None]).flatten(0, 1).mT @ self.inputs.flatten(0, 1)

    def bias_sum(self, share: Tensor) -> Tensor:
        """Return the weighted sum (out,) of the biases' gradients."""
        return share @ self.signals.sum(1)


@dataclass(frozen=True, eq=False)
class _Factored(RecordGradients):
    """Gradients of a network of dense layers and convolutions."""

    objective: Objective
    factors: Mapping[str, _Factor]

    @cached_property
    def squares(self) -> Tensor:
        """Return the squared norms (n, parameters)."""
        return torch.stack(
            [one.bias_squares() if bias else one.squares() for one, bias, _ in self._each()], dim=1
        )

    def along(self, direction: Tensor) -> Tensor:
        """Return the products with a direction, as (n, parameters)."""
        parts = self.objective.unpack(direction)
        columns = [
            one.bias_along(parts[name]) if bias else one.along(parts[name])
            for one, bias, name in self._each()
        ]
        return torch.stack(columns, dim=1)

    def weighted_sum(self, weight: Tensor) -> Tensor:
        """Return Σᵢ wᵢ gᵢ (P,)."""
        columns = weight.expand(-1, len(self.objective.shapes)).T
        parts = [
            one.bias_sum(share) if bias else one.weighted_sum(share)
            for (one, bias, _), share in zip(self._each(), columns, strict=True)
        ]
        return torch.cat([part.flatten() for part in parts])

    def _each(self) -> Iterator[tuple[_Factor, bool, str]]:
        """Yield each parameter's layer, whether it is the bias, and its name."""
        for name in self.objective.shapes:
            layer, _, own = name.rpartition(".")
            yield self.factors[layer], own == "bias", name


def _factored(
    objective: Objective, theta: Tensor, x: Tensor, y: Tensor, layers: Mapping[str, nn.Module]
) -> RecordGradients:
    """Run once forwards and backwards; store each layer's input and backpropagated error."""
    inputs: dict[str, Tensor] = {}
    outputs: dict[str, Tensor] = {}
    calls: list[str] = []
    hooks = [
        layer.register_forward_hook(_keep(n, calls, inputs, outputs)) for n, layer in layers.items()
    ]
    try:
        losses = objective.losses(theta.detach().requires_grad_(True), x, y)
    finally:
        for hook in hooks:
            hook.remove()
    if sorted(calls) != sorted(layers):
        # A layer that is used twice, or not at all, has no product form.
        return _OneByOne(objective, theta, x, y)
    used = list(outputs)
    signals = torch.autograd.grad(losses.sum(), [outputs[n] for n in used])
    factors = {}
    for name, signal in zip(used, signals, strict=True):
        layer = layers[name]
        if isinstance(layer, nn.Conv2d) and not isinstance(layer.padding, str):
            patches = nn.functional.unfold(
                inputs[name],
                layer.kernel_size,
                dilation=layer.dilation,
                padding=layer.padding,
                stride=layer.stride,
            )
            factors[name] = _Factor(patches.mT, signal.flatten(2).mT)
        elif signal.ndim == 2:
            factors[name] = _Factor(inputs[name][:, None], signal[:, None])
        else:
            return _OneByOne(objective, theta, x, y)
    return _Factored(objective, factors)


def _keep(
    name: str, calls: list[str], inputs: dict[str, Tensor], outputs: dict[str, Tensor]
) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
    def hook(layer: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> None:
        calls.append(name)
        inputs[name], outputs[name] = given[0].detach(), output

    return hook


@dataclass(frozen=True, eq=False)
class _OneByOne(RecordGradients):
    """Gradients of any network, each by automatic differentiation, some records at a time."""

    objective: Objective
    theta: Tensor
    x: Tensor
    y: Tensor

    @cached_property
    def squares(self) -> Tensor:
        """Return the squared norms (n, parameters)."""
        return self._columns(lambda part: part.square().sum(dim=1))

    def along(self, direction: Tensor) -> Tensor:
        """Return the products with a direction, as (n, parameters)."""
        parts = iter(torch.split(direction, self.objective.sizes) * len(self._starts()))
        return self._columns(lambda part: part @ next(parts))

    def weighted_sum(self, weight: Tensor) -> Tensor:
        """Return Σᵢ wᵢ gᵢ (P,)."""
        total = torch.zeros_like(self.theta)
        sizes = torch.tensor(self.objective.sizes, device=self.theta.device)
        for start in self._starts():
            each = self._gradients(start)
            share = weight[start : start + len(each)].expand(-1, len(sizes))
            total += (each * share.repeat_interleave(sizes, dim=1)).sum(dim=0)
        return total

    def _columns(self, number: Callable[[Tensor], Tensor]) -> Tensor:
        rows = [
            torch.stack(
                [number(part) for part in torch.split(self._gradients(s), self.objective.sizes, 1)]
            )
            for s in self._starts()
        ]
        return (
            torch.cat(rows, dim=1).T if rows else self.theta.new_zeros(0, len(self.objective.sizes))
        )

    def _starts(self) -> range:
        return range(0, len(self.x), max(1, _NUMBERS_AT_ONCE // self.theta.numel()))

    def _gradients(self, start: int) -> Tensor:
        return self._whole if len(self._starts()) == 1 else self._part(start)

    @cached_property
    def _whole(self) -> Tensor:
        """All gradients, where they are few enough to be kept."""
        return self._part(0)

    def _part(self, start: int) -> Tensor:
        part = slice(start, start + self._starts().step)
        return self.objective.gradients_each(self.theta, self.x[part], self.y[part])
