"""The visual similarity of two images: SSIM and LPIPS. PyTorch loads at the first LPIPS score.

Records that are images: (H, W) grey or (H, W, C) colour, channel last.
"""

from __future__ import annotations

import os
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from exhume.metrics import alexnet
from exhume.metrics.error import EuclideanMetric
from exhume.protocol.arrays import FloatArray
from exhume.protocol.errors import InputError
from exhume.protocol.images import channels_last
from exhume.protocol.metric import Metric, Range, require_range

LPIPS_FILE = "lpips_alex.npz"
_SSIM_BATCH = 32
_C1, _C2 = 0.01**2, 0.03**2


@dataclass(frozen=True, kw_only=True)
class SSIM(Metric):
    """Structural similarity, at most 1 (Wang et al. 2004), of (H, W) or (H, W, C) images.

    Gaussian window of standard deviation ``sigma`` pixels (11 × 11 for 1.5, borders reflected),
    constants 0.01 and 0.03, mean over positions and channels. Values are rescaled to [0, 1] first:
    SSIM compares brightness as a ratio, and on [-1, 1] black and white would have opposite signs.
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
        pair = [channel_first(x, self.value_range, name=self.name) for x in (truth, samples)]
        count, _, height, width = pair[0].shape
        self._require_sides(height, width)
        blocks = [slice(start, start + _SSIM_BATCH) for start in range(0, count, _SSIM_BATCH)]
        window = self._window()
        scores = [_structural(pair[0][block], pair[1][block], window) for block in blocks]
        return np.concatenate(scores)

    def _window(self) -> FloatArray:
        axis = np.arange(-self._half, self._half + 1)
        window: FloatArray = np.exp(-(axis**2) / (2 * self.sigma**2))
        window /= window.sum()
        return window

    @property
    def _half(self) -> int:
        return int(3.5 * self.sigma + 0.5)

    def _require_sides(self, height: int, width: int) -> None:
        # Reflection at the border needs one pixel more than half the window.
        smallest = self._half + 1
        if min(height, width) < smallest:
            raise InputError(
                f"ssim with sigma={self.sigma:g} needs sides of at least {smallest} pixels, got "
                f"{height} × {width}: use a smaller sigma, or another metric"
            )


def _structural(a: FloatArray, b: FloatArray, window: FloatArray) -> FloatArray:
    """Return the mean over positions and channels of Wang et al. 2004, eq. 13, for (n, C, H, W)."""
    mean_a, mean_b, square_a, square_b, product = (
        _blurred(x, window) for x in (a, b, a * a, b * b, a * b)
    )
    squares, both = mean_a**2 + mean_b**2, mean_a * mean_b
    brightness = (2 * both + _C1) / (squares + _C1)
    structure = (2 * (product - both) + _C2) / (square_a + square_b - squares + _C2)
    means: FloatArray = (brightness * structure).mean(axis=(1, 2, 3))
    return means


def _blurred(x: FloatArray, window: FloatArray) -> FloatArray:
    """Average over a Gaussian window along height and width, reflected at the borders."""
    half = len(window) // 2
    for axis in (2, 3):
        margins = [(half, half) if place == axis else (0, 0) for place in range(x.ndim)]
        padded = np.moveaxis(np.pad(x, margins, mode="reflect"), axis, 0)
        shifted = (padded[k : k + x.shape[axis]] for k in range(len(window)))
        x = np.moveaxis(sum(w * part for w, part in zip(window, shifted, strict=True)), 0, axis)
    return x


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
    """Say in one line why LPIPS cannot be computed here, or return None if it can."""
    folder = os.environ.get("EXHUME_DATA")
    page = "docs/explanation/metrics.md"
    recipe = f"{page} explains how to create {LPIPS_FILE} from the published weights"
    if not folder:
        return (
            f"LPIPS needs the file {LPIPS_FILE}, but the environment variable EXHUME_DATA, which "
            f"names its folder, is not set; {recipe}"
        )
    if not (Path(folder) / LPIPS_FILE).is_file():
        return f"LPIPS needs {LPIPS_FILE}, but {folder} (EXHUME_DATA) does not contain it; {recipe}"
    return None


def channel_first(images: FloatArray, value_range: Range, *, name: str) -> FloatArray:
    """Return images as (n, C, H, W), with ``value_range`` as [0, 1]; grey ones have no C."""
    shape = images.shape[1:]
    if len(shape) not in (2, 3) or 0 in shape:
        raise InputError(
            f"{name} compares images: a record must have shape (H, W), (H, W, C) or (C, H, W), "
            f"got {shape}"
        )
    images = channels_last(images)
    if len(shape) == 2:
        images = images[..., None]
    low, high = value_range
    return np.ascontiguousarray((np.moveaxis(images, -1, 1) - low) / (high - low))
