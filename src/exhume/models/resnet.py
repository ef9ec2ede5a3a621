"""Residual networks for small images (He et al. 2016), with an optional wide head."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from exhume.models.base import Activation, Network
from exhume.models.cnn import channels_first
from exhume.models.convnet import standardised
from exhume.models.lenet import require_image
from exhume.protocol.errors import InputError

if TYPE_CHECKING:
    import torch
    from torch import nn


@dataclass(frozen=True)
class ResNet(Network):
    """A 3 × 3 stem without pooling, stages of two-convolution blocks, the mean over the image.

    Stage i has ``blocks[i]`` blocks of ``width``·2ⁱ filters and halves the image except for the
    first. The default is ResNet-18 with the stem for small images. ``wide_head`` m puts a linear
    layer of m units and an activation before the classes (Liu et al. 2024, appendix F): parameters
    ``head.hidden.weight`` (m, d) and ``head.output.weight``; without it the head is ``head``.
    Records enter as (x − ``centre``) / ``spread``.

    >>> ResNet((32, 32, 3), 10).parameter_count()
    11173962
    >>> resnet20((32, 32, 3), 10).parameter_count()
    272474
    """

    record_shape: tuple[int, ...]
    outputs: int
    width: int = 64
    blocks: tuple[int, ...] = (2, 2, 2, 2)
    activation: Activation = Activation.RELU
    wide_head: int | None = None
    centre: float = 0.5
    spread: float = 0.25

    def __post_init__(self) -> None:
        require_image(self.record_shape)
        sizes = (self.width, self.outputs, *self.blocks, self.wide_head or 1)
        if not self.blocks or min(sizes) < 1:
            raise InputError(f"every width and number of blocks must be at least 1, got {self}")

    @property
    def features(self) -> int:
        """The number of features of a record, the inputs of the head."""
        return int(self.width * 2 ** (len(self.blocks) - 1))

    @property
    def depth(self) -> int:
        """The usual number in a ResNet's name: convolutions on the main path and one head."""
        return 2 * sum(self.blocks) + 2

    def build(self) -> nn.Module:
        """Return ``stem``, ``stages``, the mean over the image and ``head``."""
        from torch import nn

        channels = require_image(self.record_shape)[2]
        stem = [
            nn.Conv2d(channels, self.width, 3, 1, 1, bias=False),
            nn.BatchNorm2d(self.width),
            self.activation.build(),
        ]
        parts: OrderedDict[str, nn.Module] = OrderedDict(
            standard=standardised(self.centre, self.spread),
            layout=channels_first(self.record_shape),
            stem=nn.Sequential(*stem),
            stages=self._stages(),
        )
        parts["mean"] = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        parts["head"] = self._head()
        return nn.Sequential(parts)

    def describe(self) -> str:
        """Return for example ``a ResNet-18 of width 16``."""
        wide = "" if self.wide_head is None else f" with a head of {self.wide_head} units"
        return f"a ResNet-{self.depth} of width {self.width}{wide}"

    def _stages(self) -> nn.Module:
        from torch import nn

        inputs, made = self.width, []
        for stage, count in enumerate(self.blocks):
            filters = self.width * 2**stage
            for number in range(count):
                stride = 2 if stage and not number else 1
                made.append(_block(inputs, filters, stride, self.activation))
                inputs = filters
        return nn.Sequential(*made)

    def _head(self) -> nn.Module:
        from torch import nn

        if self.wide_head is None:
            return nn.Linear(self.features, self.outputs)
        return nn.Sequential(
            OrderedDict[str, nn.Module](
                hidden=nn.Linear(self.features, self.wide_head, bias=False),
                activation=self.activation.build(),
                output=nn.Linear(self.wide_head, self.outputs),
            )
        )


def resnet20(record_shape: tuple[int, ...], outputs: int) -> ResNet:
    """Return He et al.'s ResNet-20 for CIFAR-10, shortcuts by 1 × 1 convolutions."""
    return ResNet(record_shape, outputs, width=16, blocks=(3, 3, 3))


def _block(inputs: int, filters: int, stride: int, activation: Activation) -> nn.Module:
    """Return two normalised convolutions with a shortcut."""
    from torch import nn

    class ResidualBlock(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(inputs, filters, 3, stride, 1, bias=False)
            self.first_norm = nn.BatchNorm2d(filters)
            self.second = nn.Conv2d(filters, filters, 3, 1, 1, bias=False)
            self.second_norm = nn.BatchNorm2d(filters)
            self.activation = activation.build()
            self.shortcut: nn.Module = nn.Identity()
            if stride != 1 or inputs != filters:
                self.shortcut = nn.Sequential(
                    nn.Conv2d(inputs, filters, 1, stride, bias=False), nn.BatchNorm2d(filters)
                )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            inner = self.activation(self.first_norm(self.first(x)))
            inner = self.second_norm(self.second(inner))
            added: torch.Tensor = self.activation(inner + self.shortcut(x))
            return added

    return ResidualBlock()
