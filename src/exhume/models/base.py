"""The network protocol: a record of a given shape in, a number of scores out."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

    from exhume.protocol.arrays import Array


class Activation(Enum):
    """The nonlinearity between layers, by its PyTorch name in lower case."""

    ELU = "elu"
    RELU = "relu"
    LEAKY_RELU = "leaky-relu"
    TANH = "tanh"
    SIGMOID = "sigmoid"
    SOFTPLUS = "softplus"
    GELU = "gelu"
    SILU = "silu"
    SHIFTED_RELU = "shifted-relu"
    """ReLU(z + 1): its third Hermite coefficient is not 0 (Wang et al. 2023)."""
    SHIFTED_TANH = "shifted-tanh"
    """tanh(z + 1)."""
    RELU_PLUS_TANH = "relu-plus-tanh"
    """ReLU(z) + tanh(z)."""

    def build(self) -> nn.Module:
        """Return the PyTorch module."""
        from torch import nn

        made: dict[Activation, type[nn.Module]] = {
            Activation.ELU: nn.ELU,
            Activation.RELU: nn.ReLU,
            Activation.LEAKY_RELU: nn.LeakyReLU,
            Activation.TANH: nn.Tanh,
            Activation.SIGMOID: nn.Sigmoid,
            Activation.SOFTPLUS: nn.Softplus,
            Activation.GELU: nn.GELU,
            Activation.SILU: nn.SiLU,
        }
        return made[self]() if self in made else _composed(self)


def _composed(activation: Activation) -> nn.Module:
    """Return the module of an activation that PyTorch lacks."""
    import torch
    from torch import nn

    class Composed(nn.Module):
        def forward(self, z: torch.Tensor) -> torch.Tensor:
            if activation is Activation.SHIFTED_RELU:
                return torch.relu(z + 1.0)
            if activation is Activation.SHIFTED_TANH:
                return torch.tanh(z + 1.0)
            return torch.relu(z) + torch.tanh(z)

    return Composed()


class Network(ABC):
    """An architecture. Subclasses are frozen dataclasses: equal settings, equal network.

    ``record_shape`` is the shape of one record in the data (images are height × width, or height ×
    width × channels); ``outputs`` is the number of scores per record.
    """

    record_shape: tuple[int, ...]
    outputs: int

    @abstractmethod
    def build(self) -> nn.Module:
        """Return a module that maps (n, *record shape) to scores (n, outputs).

        The values of its parameters do not matter: training draws or loads them. Parameter names
        are stable, because releases contain them.
        """

    @abstractmethod
    def describe(self) -> str:
        """Return a short description for the report."""

    def module(self) -> nn.Module:
        """Return ``build()``'s module without changing the global random stream."""
        import torch

        with torch.random.fork_rng(devices=[]):
            return self.build()

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every parameter by name, in the module's own order."""
        return {name: tuple(p.shape) for name, p in self.module().named_parameters()}

    def buffer_names(self) -> tuple[str, ...]:
        """Return the names of the module's buffers: what a checkpoint holds beside parameters."""
        module = self.module()
        parameters = dict(module.named_parameters())
        return tuple(name for name in module.state_dict() if name not in parameters)

    def parameter_count(self) -> int:
        """Return how many numbers the parameters hold."""
        return sum(math.prod(shape) for shape in self.parameter_shapes().values())


def misfits(
    shapes: Mapping[str, tuple[int, ...]],
    arrays: Mapping[str, Array],
    *,
    some: bool = False,
    more: bool = False,
) -> list[str]:
    """Yield why arrays do not fit a network's parameters.

    ``shapes`` are the network's. With ``some``, arrays may be missing; with ``more``, additional
    arrays are allowed.

    >>> import numpy as np
    >>> for reason in misfits({"a": (2, 3), "b": (1,)}, {"a": np.ones((3, 2)), "c": np.ones(4)}):
    ...     print(reason)
    'a' has shape (3, 2), the network's has (2, 3) (it is transposed)
    there is no parameter 'b' (shape (1,))
    the network has no parameter 'c'
    """
    reasons = []
    for name, shape in shapes.items():
        found = tuple(arrays[name].shape) if name in arrays else None
        if found is None and not some:
            reasons.append(f"there is no parameter {name!r} (shape {shape})")
        elif found is not None and found != shape:
            turned = " (it is transposed)" if found == shape[::-1] else ""
            reasons.append(f"{name!r} has shape {found}, the network's has {shape}{turned}")
    extra = [] if more else [name for name in arrays if name not in shapes]
    return reasons + [f"the network has no parameter {name!r}" for name in extra]


_WRAPPERS = ("module.", "_module.", "_orig_mod.")
"""What data parallelism, Opacus and compilation put before every name of a module."""


def unwrapped(names: Iterable[str]) -> list[str]:
    """Return names without the prefixes that wrappers of modules put before all of them.

    >>> unwrapped(["_orig_mod.module.1.weight", "_orig_mod.module.1.bias"])
    ['1.weight', '1.bias']
    """
    found = list(names)
    while found:
        prefix = next((w for w in _WRAPPERS if all(n.startswith(w) for n in found)), None)
        if prefix is None:
            break
        found = [name.removeprefix(prefix) for name in found]
    return found


def under_own_names(own: Iterable[str], arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return arrays by the names that a module has for them, whatever either is wrapped in.

    The network may also be an attribute of the module that was saved, as in PyTorch Lightning.

    >>> list(under_own_names(["weight", "bias"], {"module.weight": 1, "module.bias": 2}))
    ['weight', 'bias']
    >>> list(under_own_names(["0.weight"], {"net.0.weight": 1}))
    ['0.weight']
    """
    own = list(own)
    names, plain = dict(zip(unwrapped(own), own, strict=True)), unwrapped(arrays)
    if plain and not names.keys() & set(plain):
        inside = [name.partition(".")[2] for name in plain]
        alike = len({name.partition(".")[0] for name in plain}) == 1
        plain = inside if alike and names.keys() <= set(inside) else plain
    return {names.get(n, n): array for n, array in zip(plain, arrays.values(), strict=True)}


def parameters_in(network: Network, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the parameters in a network's checkpoint, and whatever is no buffer of the network."""
    shapes, buffers = network.parameter_shapes(), network.buffer_names()
    named = under_own_names([*shapes, *buffers], arrays)
    return {name: array for name, array in named.items() if name not in buffers}
