"""A small generator, trained on public images: a prior for an adversary with such images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from exhume.models.cnn import as_records
from exhume.models.lenet import require_image
from exhume.protocol.arrays import FloatArray
from exhume.protocol.errors import InputError

if TYPE_CHECKING:
    import torch
    from torch import nn


@dataclass(frozen=True)
class Generator:
    """Maps codes (n, ``code``) to images (n, *record shape) in (0, 1).

    A linear layer to a coarse grid of ``width`` channels, then convolutions that double it.
    """

    record_shape: tuple[int, ...]
    code: int = 96
    width: int = 48

    def __post_init__(self) -> None:
        require_image(self.record_shape)
        if min(self.code, self.width) < 1:
            raise InputError(f"code and width must be at least 1, got {self}")

    def build(self, seed: int) -> nn.Module:
        """Return the module; its parameters are drawn from ``seed`` alone."""
        import torch

        # Modules draw from the global stream, so its state is restored.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return _decoder(self)


def train_generator(
    generator: Generator,
    images: FloatArray,
    *,
    steps: int,
    rng: np.random.Generator,
    batch_size: int = 32,
    learning_rate: float = 2e-3,
) -> nn.Module:
    """Return a generator trained as the decoder of an autoencoder on ``images`` in [0, 1].

    ``images`` (n, *record shape). Codes are pulled towards N(0, 1) and get a little noise, so that
    nearby codes give images too. It replaces the pre-trained GAN of Jeon et al. 2021.
    """
    import torch

    if len(images) < 2:
        raise InputError(f"a generator is trained on at least 2 images, got {len(images)}")
    decoder = generator.build(int(rng.integers(2**31)))
    encoder = _encoder(generator, int(rng.integers(2**31)))
    parameters = [*decoder.parameters(), *encoder.parameters()]
    optimiser = torch.optim.Adam(parameters, learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, max(1, steps))
    for _ in range(steps):
        chosen = rng.integers(0, len(images), batch_size)
        x = torch.tensor(np.asarray(images[chosen], dtype=np.float32))
        code = encoder(x)
        noise = torch.tensor(rng.standard_normal(tuple(code.shape)), dtype=code.dtype)
        made = decoder(code + 0.1 * noise)
        loss = (made - x).square().mean() + 1e-4 * code.square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return decoder.requires_grad_(True)


def _decoder(settings: Generator) -> nn.Module:
    import torch
    from torch import nn
    from torch.nn.functional import interpolate

    height, wide, channels = require_image(settings.record_shape)
    sides = [(height, wide)]
    while min(sides[0]) > 7:
        sides.insert(0, (-(-sides[0][0] // 2), -(-sides[0][1] // 2)))
    width = settings.width

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.start = nn.Linear(settings.code, width * sides[0][0] * sides[0][1])
            self.levels = nn.ModuleList([_level(width) for _ in sides])
            self.out = nn.Conv2d(width, channels, 3, 1, 1)

        def forward(self, code: torch.Tensor) -> torch.Tensor:
            x = self.start(code).reshape(len(code), width, *sides[0])
            for side, level in zip(sides, self.levels, strict=True):
                x = level(x if x.shape[-2:] == side else interpolate(x, size=side))
            image = torch.sigmoid(self.out(x))
            return as_records(image, settings.record_shape)

    return Decoder()


def _level(width: int) -> nn.Module:
    from torch import nn

    groups = next(count for count in (4, 3, 2, 1) if width % count == 0)
    return nn.Sequential(nn.Conv2d(width, width, 3, 1, 1), nn.GroupNorm(groups, width), nn.SiLU())


def _encoder(settings: Generator, seed: int) -> nn.Module:
    import torch
    from torch import nn

    from exhume.models.cnn import channels_first

    height, wide, channels = require_image(settings.record_shape)
    sides = -(-height // 4) * -(-wide // 4)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            channels_first(settings.record_shape),
            nn.Conv2d(channels, settings.width, 3, 2, 1),
            nn.SiLU(),
            nn.Conv2d(settings.width, settings.width, 3, 2, 1),
            nn.SiLU(),
            nn.Flatten(),
            nn.Linear(settings.width * sides, settings.code),
        )
