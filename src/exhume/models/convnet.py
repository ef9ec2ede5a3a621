"""A small convolutional network without normalisation: a common victim of gradient matching."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from exhume.models.base import Activation, Network
from exhume.models.cnn import channels_first
from exhume.models.lenet import require_image
from exhume.protocol.errors import InputError

if TYPE_CHECKING:
    import torch
    from torch import nn


@dataclass(frozen=True)
class ConvNet(Network):
    """Four 3 × 3 convolutions, ``width`` filters twice and 2·``width`` twice, and a linear head.

    The second and the fourth convolution halve the image. Records enter as (x − ``centre``) /
    ``spread``, which approximately standardises pixels in [0, 1].

    >>> ConvNet((32, 32, 3), 10).parameter_count()
    106538
    """

    record_shape: tuple[int, ...]
    outputs: int
    width: int = 32
    activation: Activation = Activation.RELU
    centre: float = 0.5
    spread: float = 0.25

    def __post_init__(self) -> None:
        require_image(self.record_shape)
        if min(self.width, self.outputs) < 1:
            raise InputError(f"width and outputs must be at least 1, got {self}")

    def build(self) -> nn.Module:
        """Return the convolutions with an activation after each, and the head."""
        from torch import nn

        height, width, channels = require_image(self.record_shape)
        layers: list[nn.Module] = [
            standardised(self.centre, self.spread),
            channels_first(self.record_shape),
        ]
        for filters, stride in zip((1, 1, 2, 2), (1, 2, 1, 2), strict=True):
            layers.append(nn.Conv2d(channels, filters * self.width, 3, stride, 1))
            layers.append(self.activation.build())
            channels = filters * self.width
        sides = -(-height // 4) * -(-width // 4)
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * sides, self.outputs))

    def describe(self) -> str:
        """Return for example ``a ConvNet of 4 convolutions (width 32, relu)``."""
        return f"a ConvNet of 4 convolutions (width {self.width}, {self.activation.value})"


def standardised(centre: float, spread: float) -> nn.Module:
    """Return a module without parameters that maps x to (x − centre) / spread."""
    from torch import nn

    if not spread > 0:
        raise InputError(f"spread must be a positive number, got {spread}")

    class Standardised(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x - centre) / spread

    return Standardised()
