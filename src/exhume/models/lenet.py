"""The LeNet of Zhu et al. 2019: sigmoids and strides, so that its gradient is smooth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from exhume.models.base import Activation, Network
from exhume.models.cnn import channels_first
from exhume.protocol.arrays import FloatArray
from exhume.protocol.errors import InputError
from exhume.protocol.images import sides_of

if TYPE_CHECKING:
    from torch import nn

FILTERS = 12


@dataclass(frozen=True)
class LeNet(Network):
    """Three 5 × 5 convolutions of 12 filters (strides 2, 2, 1) and a linear head.

    >>> LeNet((32, 32, 3), 10).parameter_count()
    15826
    """

    record_shape: tuple[int, ...]
    outputs: int
    activation: Activation = Activation.SIGMOID

    def __post_init__(self) -> None:
        require_image(self.record_shape)
        if self.outputs < 1:
            raise InputError(f"a network needs at least 1 output, got {self.outputs}")

    def build(self) -> nn.Module:
        """Return the convolutions with an activation after each, and the head."""
        from torch import nn

        height, width, channels = require_image(self.record_shape)
        layers: list[nn.Module] = [channels_first(self.record_shape)]
        for stride in (2, 2, 1):
            layers += [nn.Conv2d(channels, FILTERS, 5, stride, 2), self.activation.build()]
            channels = FILTERS
        sides = -(-height // 4) * -(-width // 4)
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(FILTERS * sides, self.outputs))

    def describe(self) -> str:
        """Return ``the LeNet of Zhu et al. (sigmoid)``."""
        return f"the LeNet of Zhu et al. ({self.activation.value})"

    def uniform_parameters(self, rng: np.random.Generator) -> dict[str, FloatArray]:
        """Draw every weight and bias from U(−½, ½), as Zhu et al. 2019 do."""
        shapes = self.parameter_shapes()
        return {name: rng.uniform(-0.5, 0.5, size=shape) for name, shape in shapes.items()}


def require_image(record_shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return height, width and channels of a record; InputError if it is not an image."""
    if len(record_shape) not in (2, 3) or min(record_shape) < 1:
        raise InputError(
            "records must be images (height, width), (height, width, channels) or "
            f"(channels, height, width), got records of shape {record_shape}"
        )
    return sides_of(record_shape)
