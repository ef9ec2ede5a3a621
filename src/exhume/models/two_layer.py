"""The two-layer network of Liu et al. 2024: z → A·σ(Wz), wide, with random weights."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from exhume.models.base import Activation, Network
from exhume.protocol.errors import InputError

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class TwoLayer(Network):
    """Scores A·σ(Wz + b) + c of a record z with d values, ``width`` hidden units (section 3).

    Parameters: ``hidden.weight`` W (m, d), ``output.weight`` A (outputs, m); ``hidden.bias`` b and
    ``output.bias`` c if requested. The paper's network has neither.

    >>> TwoLayer((64,), 10, width=1024).parameter_count()
    75776
    """

    record_shape: tuple[int, ...]
    outputs: int
    width: int
    activation: Activation = Activation.RELU
    hidden_bias: bool = False
    output_bias: bool = False

    def __post_init__(self) -> None:
        for size in (*self.record_shape, self.width, self.outputs):
            if size < 1:
                raise InputError(f"a layer needs a width of at least 1, got {size} in {self}")

    def build(self) -> nn.Module:
        """Return Flatten, ``hidden``, the activation and ``output``."""
        from torch import nn

        inputs = math.prod(self.record_shape)
        return nn.Sequential(
            OrderedDict[str, nn.Module](
                flatten=nn.Flatten(),
                hidden=nn.Linear(inputs, self.width, bias=self.hidden_bias),
                activation=self.activation.build(),
                output=nn.Linear(self.width, self.outputs, bias=self.output_bias),
            )
        )

    def describe(self) -> str:
        """Return for example ``a two-layer 64-1024-10 network (relu)``."""
        inputs = math.prod(self.record_shape)
        widths = f"{inputs}-{self.width}-{self.outputs}"
        return f"a two-layer {widths} network ({self.activation.value})"
