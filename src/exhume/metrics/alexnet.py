"""The network behind LPIPS: AlexNet's five convolutions and the weights LPIPS gives their features.

One file holds all of it, ``lpips_alex.npz``: ``features.{0,3,6,8,10}.weight`` and ``.bias`` (the
convolutions, numbered as in PyTorch's AlexNet) and ``lin0`` … ``lin4`` (the weight of each channel
in LPIPS version 0.1), all float32.
"""

from __future__ import annotations

import zipfile
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from exhume.protocol.arrays import FloatArray
from exhume.protocol.errors import InputError

if TYPE_CHECKING:
    import torch

SMALLEST_SIDE = 31
"""For smaller images, the second pooling has no input left."""
ENLARGED_SIDE = 32
BATCH = 32
"""Every batch has this size, the last one padded: the size decides which convolution kernel runs,
and an image's score must not depend, even in its last digits, on how many others are in the batch.
"""

_SHIFT = (-0.030, -0.088, -0.188)
_SPREAD = (0.458, 0.448, 0.450)


class _Layer(NamedTuple):
    """One convolution: its number in the file, geometry, and whether a pooling comes before it."""

    number: int
    shape: tuple[int, int, int, int]
    stride: int
    padding: int
    pooled: bool


_LAYERS = (
    _Layer(0, (64, 3, 11, 11), 4, 2, False),
    _Layer(3, (192, 64, 5, 5), 1, 2, True),
    _Layer(6, (384, 192, 3, 3), 1, 1, True),
    _Layer(8, (256, 384, 3, 3), 1, 1, False),
    _Layer(10, (256, 256, 3, 3), 1, 1, False),
)


class _Stage(NamedTuple):
    """The parameters of one layer: the convolution's, and LPIPS' weight of each channel."""

    weight: torch.Tensor
    bias: torch.Tensor
    head: torch.Tensor


def embed(images: FloatArray, weights: Path) -> FloatArray:
    """Return (n, size) vectors whose squared distance is the LPIPS distance of the images.

    ``images`` are (n, 3, H, W) in [0, 1]. Zhang et al. 2018, eq. 1: after each ReLU the features
    are scaled to length one over the channels; their squared differences are weighted by channel,
    averaged over positions and summed over layers. All of that is one squared Euclidean distance,
    since the weights are never negative.
    """
    import torch

    stages = _load(weights, weights.stat().st_mtime_ns)
    parts = []
    with torch.no_grad():
        for start in range(0, len(images), BATCH):
            batch = torch.from_numpy(images[start : start + BATCH]).to(torch.float32)
            padded = torch.cat([batch, batch[:1].expand(BATCH - len(batch), -1, -1, -1)])
            parts.append(_embed_batch(padded, stages)[: len(batch)].numpy())
    return np.concatenate(parts).astype(np.float64)


def _embed_batch(images: torch.Tensor, stages: tuple[_Stage, ...]) -> torch.Tensor:
    import torch
    from torch.nn import functional

    shift = torch.tensor(_SHIFT).view(3, 1, 1)
    spread = torch.tensor(_SPREAD).view(3, 1, 1)
    x = (2.0 * _large_enough(images) - 1.0 - shift) / spread
    parts = []
    for layer, stage in zip(_LAYERS, stages, strict=True):
        if layer.pooled:
            x = functional.max_pool2d(x, 3, 2)
        x = functional.conv2d(x, stage.weight, stage.bias, layer.stride, layer.padding).relu()
        # The small constant keeps a position where every channel is silent at zero.
        unit = x / (x.square().sum(1, keepdim=True).sqrt() + 1e-10)
        positions = x.shape[2] * x.shape[3]
        parts.append((unit * (stage.head / positions).sqrt().view(-1, 1, 1)).flatten(1))
    return torch.cat(parts, 1)


def _large_enough(images: torch.Tensor) -> torch.Tensor:
    """Enlarge small images, both sides equally, until AlexNet accepts them."""
    from torch.nn import functional

    height, width = images.shape[2:]
    shorter = min(height, width)
    if shorter >= SMALLEST_SIDE:
        return images
    size = [round(side * ENLARGED_SIDE / shorter) for side in (height, width)]
    return functional.interpolate(images, size=size, mode="bilinear", align_corners=False)


@lru_cache(maxsize=2)
def _load(weights: Path, modified: int) -> tuple[_Stage, ...]:
    """Read the weights; a new ``modified`` forces reading again after a change of the file."""
    try:
        with np.load(weights, allow_pickle=False) as archive:
            arrays = {name: archive[name].astype(np.float32) for name in archive.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"{weights} is not an .npz of LPIPS weights: {error}") from error
    return tuple(_stage(arrays, index, layer, weights) for index, layer in enumerate(_LAYERS))


def _stage(arrays: dict[str, np.ndarray], index: int, layer: _Layer, weights: Path) -> _Stage:
    import torch

    channels = layer.shape[0]
    wanted = {
        f"features.{layer.number}.weight": layer.shape,
        f"features.{layer.number}.bias": (channels,),
        f"lin{index}": (channels,),
    }
    for name, shape in wanted.items():
        if name not in arrays or arrays[name].shape != shape:
            found = arrays[name].shape if name in arrays else "nothing"
            raise InputError(f"{weights}: {name} must be there with shape {shape}, found {found}")
    if arrays[f"lin{index}"].min() < 0:
        raise InputError(
            f"{weights}: lin{index} has negative entries, and LPIPS' weights have none"
        )
    return _Stage(*(torch.from_numpy(arrays[name]) for name in wanted))
