"""Fully connected networks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from exhume.models.base import Activation, Network
from exhume.protocol.errors import InputError

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class MLP(Network):
    """Layers of ``hidden`` widths; one hidden layer of 10 ELUs is Balle et al.'s MNIST model.

    >>> MLP((28, 28), 10, hidden=(10,)).parameter_count()
    7960
    """

    record_shape: tuple[int, ...]
    outputs: int
    hidden: tuple[int, ...] = (10,)
    activation: Activation = Activation.ELU

    def __post_init__(self) -> None:
        for width in (*self.record_shape, *self.hidden, self.outputs):
            if width < 1:
                raise InputError(f"a layer needs a width of at least 1, got {width} in {self}")

    def build(self) -> nn.Module:
        """Return Flatten, then Linear and activation in turn."""
        from torch import nn

        widths = (math.prod(self.record_shape), *self.hidden, self.outputs)
        layers: list[nn.Module] = [nn.Flatten()]
        for inputs, outputs in pairwise(widths):
            layers += [nn.Linear(inputs, outputs), self.activation.build()]
        return nn.Sequential(*layers[:-1])

    def describe(self) -> str:
        """Return for example ``a 784-10-10 network (elu)``."""
        widths = (math.prod(self.record_shape), *self.hidden, self.outputs)
        return f"a {'-'.join(map(str, widths))} network ({self.activation.value})"
