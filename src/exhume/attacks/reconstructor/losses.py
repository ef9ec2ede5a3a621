"""What φ is trained on: MAE + MSE, for colour images their looks too (Balle et al. 2022, §V-A)."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from exhume.models.reconstructors import PatchDiscriminator

Range = tuple[float, float]
_DISCRIMINATOR_RATE = 1e-5


def closeness(found: Tensor, truth: Tensor) -> Tensor:
    """Return mean absolute error + mean squared error."""
    gap = found - truth
    return gap.abs().mean() + gap.square().mean()


class Perceptual:
    """LPIPS with AlexNet, differentiable: images (n, height, width, 3) in ``value_range``."""

    def __init__(self, weights: Path, value_range: Range, device: str) -> None:
        from exhume.metrics.alexnet import _load

        loaded = _load(weights, weights.stat().st_mtime_ns)
        self._stages = tuple(type(stage)(*(part.to(device) for part in stage)) for stage in loaded)
        self._range = value_range

    def __call__(self, found: Tensor, truth: Tensor) -> Tensor:
        """Return the mean LPIPS distance of pairs of images."""
        from exhume.metrics.alexnet import _embed_batch

        with torch.no_grad():
            wanted = _embed_batch(self._unit(truth), self._stages)
        made = _embed_batch(self._unit(found), self._stages)
        return (made - wanted).square().sum(dim=1).mean()

    def _unit(self, images: Tensor) -> Tensor:
        low, high = self._range
        return ((images - low) / (high - low)).movedim(-1, 1)


class Adversary:
    """A patch discriminator trained beside φ with least squares (Mao et al. 2017)."""

    def __init__(self, record_shape: tuple[int, ...], device: str) -> None:
        self._network: nn.Module = PatchDiscriminator(record_shape).build().to(device)
        parameters = self._network.parameters()
        self._optimiser = torch.optim.Adam(parameters, lr=_DISCRIMINATOR_RATE, betas=(0.5, 0.999))

    def learn(self, found: Tensor, truth: Tensor) -> None:
        """Take one step towards 1 on real images and 0 on made ones."""
        self._optimiser.zero_grad()
        real = (self._network(truth) - 1.0).square().mean()
        made = self._network(found.detach()).square().mean()
        (0.5 * (real + made)).backward()
        self._optimiser.step()

    def __call__(self, found: Tensor) -> Tensor:
        """Return how far made images are from passing for real ones."""
        loss: Tensor = (self._network(found) - 1.0).square().mean()
        return loss
