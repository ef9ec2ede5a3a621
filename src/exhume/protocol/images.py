"""Images by the shape of a record: (H, W), (H, W, C) or, as PyTorch has them, (C, H, W)."""

from __future__ import annotations

import numpy as np

from exhume.protocol.arrays import FloatArray


def channels_are_first(record_shape: tuple[int, ...]) -> bool:
    """Whether a record's shape is (C, H, W): 1 or 3 channels, and no such number at the end.

    >>> channels_are_first((3, 32, 32)), channels_are_first((32, 32, 3)), channels_are_first((8, 8))
    (True, False, False)
    """
    return len(record_shape) == 3 and record_shape[0] in (1, 3) and record_shape[2] not in (1, 3)


def sides_of(record_shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return height, width and channels of an image of this shape.

    >>> sides_of((3, 32, 24)), sides_of((32, 24, 3)), sides_of((32, 24))
    ((32, 24, 3), (32, 24, 3), (32, 24, 1))
    """
    if channels_are_first(record_shape):
        return record_shape[1], record_shape[2], record_shape[0]
    return record_shape[0], record_shape[1], record_shape[2] if len(record_shape) == 3 else 1


def channels_last(records: FloatArray) -> FloatArray:
    """Return records (n, *shape) with the channels, if there are any, as the last axis."""
    return np.moveaxis(records, 1, -1) if channels_are_first(records.shape[1:]) else records
