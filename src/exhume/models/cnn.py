"""Plain convolutional networks: convolutions, then one fully connected layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from exhume.models.base import Activation, Network
from exhume.protocol.errors import InputError
from exhume.protocol.images import channels_are_first, sides_of

if TYPE_CHECKING:
    import torch
    from torch import nn


@dataclass(frozen=True)
class Convolution:
    """One convolution: ``filters`` of ``kernel`` × ``kernel`` at ``stride``, zero ``padding``."""

    filters: int
    kernel: int
    stride: int = 1
    padding: int = 0


@dataclass(frozen=True)
class CNN(Network):
    """Convolutions and a linear head; the default is Balle et al. 2022, Table VI (VALID padding).

    >>> CNN((32, 32, 3), 10).parameter_count()
    55098
    """

    record_shape: tuple[int, ...]
    outputs: int
    convolutions: tuple[Convolution, ...] = (Convolution(16, 4, 2), Convolution(32, 4))
    activation: Activation = Activation.ELU

    def __post_init__(self) -> None:
        if len(self.record_shape) not in (2, 3):
            raise InputError(
                "a convolutional network takes images (height, width) or "
                f"(height, width, channels), got records of shape {self.record_shape}"
            )
        self._sides()

    def build(self) -> nn.Module:
        """Return the convolutions with an activation after each, and the head."""
        from torch import nn

        channels = sides_of(self.record_shape)[2]
        layers: list[nn.Module] = [channels_first(self.record_shape)]
        for one in self.convolutions:
            layers += [
                nn.Conv2d(channels, one.filters, one.kernel, one.stride, one.padding),
                self.activation.build(),
            ]
            channels = one.filters
        height, width = self._sides()
        head = nn.Linear(channels * height * width, self.outputs)
        return nn.Sequential(*layers, nn.Flatten(), head)

    def describe(self) -> str:
        """Return for example ``a network of 2 convolutions (16, 32 filters, elu)``."""
        filters = ", ".join(str(one.filters) for one in self.convolutions)
        count = len(self.convolutions)
        return f"a network of {count} convolutions ({filters} filters, {self.activation.value})"

    def _sides(self) -> tuple[int, int]:
        """Return height and width of the last convolution's output."""
        height, width, _ = sides_of(self.record_shape)
        for one in self.convolutions:
            height = (height + 2 * one.padding - one.kernel) // one.stride + 1
            width = (width + 2 * one.padding - one.kernel) // one.stride + 1
        if min(height, width) < 1:
            raise InputError(
                f"images of {sides_of(self.record_shape)[:2]} are too small for {self}"
            )
        return height, width


def channels_first(record_shape: tuple[int, ...]) -> nn.Module:
    """Return a module that turns images (n, *record shape) into (n, c, h, w)."""
    from torch import nn

    first = channels_are_first(record_shape)

    class ChannelsFirst(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if first:
                return x
            return x.unsqueeze(1) if x.ndim == 3 else x.movedim(-1, 1)

    return ChannelsFirst()


def as_records(planes: torch.Tensor, record_shape: tuple[int, ...]) -> torch.Tensor:
    """Return images (n, c, h, w) in the shape of records: the way back."""
    if len(record_shape) == 2:
        return planes[:, 0]
    return planes if channels_are_first(record_shape) else planes.movedim(1, -1)
