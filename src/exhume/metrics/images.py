"""Records that are images: (H, W) grey or (H, W, C) colour, channel last."""

from __future__ import annotations

import numpy as np

from exhume.arrays import FloatArray
from exhume.errors import InputError
from exhume.metrics.base import Range


def channel_first(images: FloatArray, value_range: Range, *, name: str) -> FloatArray:
    """Return (n, H, W) or (n, H, W, C) images as (n, C, H, W), with ``value_range`` as [0, 1]."""
    shape = images.shape[1:]
    if len(shape) not in (2, 3) or 0 in shape:
        raise InputError(
            f"{name} compares images: a record must have shape (H, W) or (H, W, C), got {shape}"
        )
    if len(shape) == 3 and shape[0] in (1, 3) and shape[2] > 4:
        raise InputError(
            f"{name} takes images channel last, (H, W, C), and {shape} is channel first"
        )
    if len(shape) == 2:
        images = images[..., None]
    low, high = value_range
    return np.ascontiguousarray((np.moveaxis(images, -1, 1) - low) / (high - low))
