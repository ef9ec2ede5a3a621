"""An untrained U-Net as a prior over images (Ulyanov et al. 2018: deep image prior)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from exhume.models.cnn import as_records
from exhume.models.lenet import require_image
from exhume.protocol.errors import InputError

if TYPE_CHECKING:
    import torch
    from torch import nn


@dataclass(frozen=True)
class UNet:
    """Maps noise (n, ``inputs``, h, w) to images (n, *record shape) in (0, 1).

    ``scales`` resolutions of ``width`` channels each, group normalisation, SiLU, skip connections
    and a sigmoid at the end: Liu et al. 2024, appendix F, made small enough for a processor.
    """

    record_shape: tuple[int, ...]
    width: int = 24
    scales: int = 3
    inputs: int = 16

    def __post_init__(self) -> None:
        height, width, _ = require_image(self.record_shape)
        if min(self.width, self.scales, self.inputs) < 1:
            raise InputError(f"width, scales and inputs must be at least 1, got {self}")
        if min(height, width) < 2 ** (self.scales - 1):
            raise InputError(f"images of {height} × {width} can't be halved for {self}")

    def build(self, seed: int) -> nn.Module:
        """Return the module; its parameters are drawn from ``seed`` alone."""
        import torch

        # Modules draw from the global stream, so its state is restored.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return _module(self)


def _module(settings: UNet) -> nn.Module:
    import torch
    from torch import nn
    from torch.nn.functional import interpolate

    channels = require_image(settings.record_shape)[2]
    width = settings.width

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            levels = range(settings.scales - 1)
            self.stem = nn.Conv2d(settings.inputs, width, 3, 1, 1)
            self.down = nn.ModuleList([_double(width, width, 1)])
            self.down.extend(_double(width, width, 2) for _ in levels)
            self.up = nn.ModuleList([_double(2 * width, width, 1) for _ in levels])
            self.out = nn.Conv2d(width, channels, 3, 1, 1)

        def forward(self, noise: torch.Tensor) -> torch.Tensor:
            x, skips = self.stem(noise), []
            for level in self.down:
                x = level(x)
                skips.append(x)
            for level, skip in zip(self.up, skips[-2::-1], strict=True):
                x = interpolate(x, size=skip.shape[-2:], mode="nearest")
                x = level(torch.cat([x, skip], dim=1))
            image = torch.sigmoid(self.out(x))
            return as_records(image, settings.record_shape)

    return Net()


def _double(inputs: int, outputs: int, stride: int) -> nn.Module:
    from torch import nn

    groups = next(count for count in (4, 3, 2, 1) if outputs % count == 0)
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, 1),
        nn.GroupNorm(groups, outputs),
        nn.SiLU(),
        nn.Conv2d(outputs, outputs, 3, 1, 1),
        nn.GroupNorm(groups, outputs),
        nn.SiLU(),
    )
