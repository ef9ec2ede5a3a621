"""What a network is to everybody else: a shape of record in, a number of scores out."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


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
    """Return the module of an activation that PyTorch has none for."""
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

    ``record_shape`` is the shape of one record as the data holds it (images are height × width, or
    height × width × channels); ``outputs`` how many scores a record gets.
    """

    record_shape: tuple[int, ...]
    outputs: int

    @abstractmethod
    def build(self) -> nn.Module:
        """Return a module that maps (n, *record shape) to scores (n, outputs).

        Its parameters' values are of no importance: whoever trains draws or loads them. Parameter
        names are stable, since releases carry them.
        """

    @abstractmethod
    def describe(self) -> str:
        """Say in a few words what it is, for the report."""

    def module(self) -> nn.Module:
        """Return ``build()``'s module, made without disturbing anybody's random stream."""
        import torch

        with torch.random.fork_rng(devices=[]):
            return self.build()

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every parameter by name, in the module's own order."""
        return {name: tuple(p.shape) for name, p in self.module().named_parameters()}

    def parameter_count(self) -> int:
        """Return how many numbers the parameters hold."""
        return sum(math.prod(shape) for shape in self.parameter_shapes().values())
