"""How alike two images look: SSIM and LPIPS. PyTorch loads at the first score, not before."""

from __future__ import annotations

import os
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from exhume.arrays import FloatArray
from exhume.errors import InputError
from exhume.metrics import alexnet
from exhume.metrics.base import Metric, Range, require_range
from exhume.metrics.euclidean import EuclideanMetric
from exhume.metrics.images import channel_first

LPIPS_FILE = "lpips_alex.npz"
_SSIM_BATCH = 32


@dataclass(frozen=True, kw_only=True)
class SSIM(Metric):
    """Structural similarity, at most 1 (Wang et al. 2004), of (H, W) or (H, W, C) images.

    Gaussian window of standard deviation ``sigma`` pixels (11 × 11 for 1.5, borders reflected),
    constants 0.01 and 0.03, mean over positions and channels. The value range is brought to [0, 1]
    first: SSIM compares brightness as a ratio, and on [-1, 1] would call black and white opposites.
    """

    name: ClassVar[str] = "ssim"
    higher_is_better: ClassVar[bool] = True
    value_range: Range
    sigma: float = 1.5

    def __post_init__(self) -> None:
        require_range(self.value_range, name=self.name)
        if not 0.15 <= self.sigma <= 50:
            raise InputError(f"ssim: sigma must lie between 0.15 and 50 pixels, got {self.sigma}")

    def _score(self, truth: FloatArray, samples: FloatArray) -> FloatArray:
        import torch
        from torchmetrics.functional.image.ssim import structural_similarity_index_measure

        pair = [channel_first(x, self.value_range, name=self.name) for x in (truth, samples)]
        count, channels, height, width = pair[0].shape
        self._require_sides(height, width)
        # As images of one channel each: float64 convolutions in groups take twice as long.
        first, second = (torch.from_numpy(x.reshape(-1, 1, height, width)) for x in pair)
        scores = [
            structural_similarity_index_measure(
                second[start : start + _SSIM_BATCH],
                first[start : start + _SSIM_BATCH],
                sigma=self.sigma,
                data_range=1.0,
                reduction="none",
            )
            for start in range(0, len(first), _SSIM_BATCH)
        ]
        flat = np.concatenate([np.asarray(score).reshape(-1) for score in scores])
        means: FloatArray = flat.reshape(count, channels).mean(axis=1)
        return means

    def _require_sides(self, height: int, width: int) -> None:
        # Reflection at the border needs one pixel more than half the window.
        smallest = int(3.5 * self.sigma + 0.5) + 1
        if min(height, width) < smallest:
            raise InputError(
                f"ssim with sigma={self.sigma:g} needs sides of at least {smallest} pixels, got "
                f"{height} × {width}: use a smaller sigma, or another metric"
            )


@dataclass(frozen=True)
class LPIPS(EuclideanMetric):
    """Learned perceptual distance with AlexNet, version 0.1 (Zhang et al. 2018); 0 is perfect.

    Images are (H, W), (H, W, 1) or (H, W, 3); grey is repeated, and an image with a side below 31
    pixels is enlarged bilinearly until its shorter side has 32. ``weights`` is the file
    ``lpips_alex.npz``; ``lpips_weights()`` finds it in the data folder.
    """

    name: ClassVar[str] = "lpips"
    higher_is_better: ClassVar[bool] = False
    weights: Path
    _: KW_ONLY
    value_range: Range

    def __post_init__(self) -> None:
        require_range(self.value_range, name=self.name)
        object.__setattr__(self, "weights", Path(self.weights))
        if not self.weights.is_file():
            raise InputError(f"lpips: there is no file of weights at {self.weights}")

    def embed(self, records: FloatArray) -> FloatArray:
        """Return AlexNet's features, weighted so that LPIPS is their mean squared difference."""
        images = channel_first(records, self.value_range, name=self.name)
        if images.shape[1] not in (1, 3):
            raise InputError(f"lpips takes images of 1 or 3 channels, got {images.shape[1]}")
        if images.shape[1] == 1:
            images = images.repeat(3, axis=1)
        vectors = alexnet.embed(images, self.weights)
        vectors *= np.sqrt(vectors.shape[1])
        return vectors

    def from_mean_square(self, mean_square: FloatArray) -> FloatArray:
        """Return ``mean_square`` itself."""
        return mean_square


def lpips_weights() -> Path:
    """Return the path of ``lpips_alex.npz`` in the folder that EXHUME_DATA names."""
    reason = lpips_unavailable()
    if reason is not None:
        raise InputError(reason)
    return Path(os.environ["EXHUME_DATA"]) / LPIPS_FILE


def lpips_unavailable() -> str | None:
    """Say in one line why LPIPS can't be computed here, or return None where it can."""
    folder = os.environ.get("EXHUME_DATA")
    recipe = f"docs/metrics.md tells how to make {LPIPS_FILE} from the published weights"
    if not folder:
        return (
            f"LPIPS needs the file {LPIPS_FILE}, and the environment variable EXHUME_DATA, "
            f"which names the folder it is in, is not set; {recipe}"
        )
    if not (Path(folder) / LPIPS_FILE).is_file():
        return f"LPIPS needs the file {LPIPS_FILE}, and {folder} (EXHUME_DATA) has none; {recipe}"
    return None
