"""Networks that turn a released model into a record (Balle et al. 2022, Tables V, VII, VIII)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from exhume.protocol.errors import InputError
from exhume.protocol.images import sides_of

if TYPE_CHECKING:
    import torch
    from torch import nn

Range = tuple[float, float]


class ReconstructorNetwork(ABC):
    """φ: a vector of ``inputs`` numbers in, a record of ``record_shape`` out.

    With a ``value_range`` the last layer ends in a sigmoid scaled to it, else it is linear.
    """

    inputs: int
    record_shape: tuple[int, ...]
    value_range: Range | None

    @abstractmethod
    def build(self) -> nn.Module:
        """Return a module that maps (n, inputs) to (n, *record shape)."""

    @abstractmethod
    def weights(self) -> int:
        """Return how many numbers its parameters hold."""


@dataclass(frozen=True)
class DenseReconstructor(ReconstructorNetwork):
    """Fully connected ReLU layers: for MNIST two of 1,000 (Table V).

    >>> DenseReconstructor(7960, (28, 28)).weights()
    9746784
    """

    inputs: int
    record_shape: tuple[int, ...]
    hidden: tuple[int, ...] = (1000, 1000)
    value_range: Range | None = (0.0, 1.0)

    def build(self) -> nn.Module:
        """Return Linear and ReLU in turn, then the output."""
        from torch import nn

        layers: list[nn.Module] = []
        for before, after in pairwise(self._widths()):
            layers += [nn.Linear(before, after), nn.ReLU()]
        shape = nn.Unflatten(1, self.record_shape)
        return nn.Sequential(*layers[:-1], shape, _output(self.value_range))

    def weights(self) -> int:
        """Return how many numbers its parameters hold."""
        return sum((before + 1) * after for before, after in pairwise(self._widths()))

    def _widths(self) -> tuple[int, ...]:
        return (self.inputs, *self.hidden, math.prod(self.record_shape))


@dataclass(frozen=True)
class ConvolutionalReconstructor(ReconstructorNetwork):
    """Transposed convolutions, for colour images (Table VII).

    A fully connected layer to 64 channels at a quarter of the sides, then two transposed
    convolutions of 5 × 5 at stride 2.

    >>> ConvolutionalReconstructor(55098, (32, 32, 3)).weights() // 10**6
    225
    """

    inputs: int
    record_shape: tuple[int, ...]
    channels: tuple[int, int] = (64, 32)
    value_range: Range | None = (0.0, 1.0)

    def __post_init__(self) -> None:
        if len(self.record_shape) != 3:
            raise InputError(
                f"this network makes images (height, width, channels), not {self.record_shape}"
            )

    def build(self) -> nn.Module:
        """Return the layers; images are cropped if a side is not a multiple of 4."""
        from torch import nn

        first, second = self.channels
        height, width, colours = sides_of(self.record_shape)
        start = (first, -(-height // 4), -(-width // 4))
        return nn.Sequential(
            nn.Linear(self.inputs, math.prod(start)),
            nn.ReLU(),
            nn.Unflatten(1, start),
            nn.ConvTranspose2d(first, second, 5, stride=2, padding=2, output_padding=1),
            nn.ReLU(),
            nn.ConvTranspose2d(second, colours, 5, stride=2, padding=2, output_padding=1),
            _cut_to_size(self.record_shape),
            _output(self.value_range),
        )

    def weights(self) -> int:
        """Return how many numbers its parameters hold."""
        first, second = self.channels
        height, width, colours = sides_of(self.record_shape)
        flat = first * -(-height // 4) * -(-width // 4)
        convolutions = (25 * first + 1) * second + (25 * second + 1) * colours
        return (self.inputs + 1) * flat + convolutions


@dataclass(frozen=True)
class PatchDiscriminator:
    """Separates real patches of images from generated ones: 4 × 4 convolutions (Table VIII)."""

    record_shape: tuple[int, ...]
    filters: tuple[int, ...] = (64, 128, 256, 512)

    def build(self) -> nn.Module:
        """Return a module that maps images (n, height, width, channels) to scores of patches."""
        from torch import nn

        from exhume.models.cnn import channels_first

        if len(self.record_shape) != 3 or min(sides_of(self.record_shape)[:2]) < 24:
            raise InputError(
                "the discriminator takes images (height, width, channels) of 24 pixels or more, "
                f"got {self.record_shape}"
            )
        layers: list[nn.Module] = [channels_first(self.record_shape)]
        before = sides_of(self.record_shape)[2]
        for place, filters in enumerate(self.filters):
            layers += [nn.Conv2d(before, filters, 4, 2 if place < 3 else 1, 1), nn.LeakyReLU(0.2)]
            before = filters
        return nn.Sequential(*layers, nn.Conv2d(before, 1, 4, 1, 1))


def _output(value_range: Range | None) -> nn.Module:
    from torch import nn

    if value_range is None:
        return nn.Identity()
    low, high = value_range

    class Scaled(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return low + (high - low) * x.sigmoid()

    return Scaled()


def _cut_to_size(record_shape: tuple[int, ...]) -> nn.Module:
    from torch import nn

    from exhume.models.cnn import as_records

    height, width, _ = sides_of(record_shape)

    class CutToSize(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return as_records(x[:, :, :height, :width], record_shape)

    return CutToSize()
