"""Images of a known data set: raw from a file, and checked as records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from exhume.protocol.arrays import Array
from exhume.protocol.errors import InputError
from exhume.protocol.records import Records


@dataclass(frozen=True, eq=False)
class RawImages:
    """Images and labels as read from ``file``, not yet checked: bytes 0–255, class numbers."""

    images: Array
    labels: Array
    file: Path


@dataclass(frozen=True)
class ImageKind:
    """The required format of a known data set's images, whatever file they come from."""

    record_shape: tuple[int, ...]
    class_count: int
    classes: tuple[str, ...] | None = None

    def records(self, files: Sequence[RawImages]) -> Records:
        """Check ``files``, join them, and return images as float32 in [0, 1], labels as int64.

        float32, because 60,000 images of 28×28 would fill 376 MB as float64; k/255 is rounded once.
        """
        for raw in files:
            self._check_images(raw)
            self._check_labels(raw)
        images = np.concatenate([raw.images for raw in files], dtype=np.float32)
        images /= np.float32(255)
        # Records copies writeable arrays; nobody else uses these.
        images.flags.writeable = False
        return Records(images, _class_numbers(files))

    def _check_images(self, raw: RawImages) -> None:
        images = raw.images
        if images.dtype != np.uint8:
            raise InputError(
                f"{raw.file}: images must be whole numbers 0–255 (uint8), got {images.dtype}"
            )
        if images.shape[1:] != self.record_shape or not len(images):
            expected = "×".join(str(side) for side in ("n", *self.record_shape))
            raise InputError(
                f"{raw.file}: images must have shape {expected} with n ≥ 1, "
                f"got {'×'.join(str(side) for side in images.shape)}"
            )

    def _check_labels(self, raw: RawImages) -> None:
        labels = raw.labels
        if labels.dtype.kind not in "iu" or labels.shape != (len(raw.images),):
            raise InputError(
                f"{raw.file}: labels must be {len(raw.images)} integers, one per image, got "
                f"shape {labels.shape} of {labels.dtype}"
            )
        low, high = int(labels.min()), int(labels.max())
        if low < 0 or high >= self.class_count:
            wrong = low if low < 0 else high
            position = int(np.argmax(labels == wrong))
            raise InputError(
                f"{raw.file}: label {wrong} of image {position} is out of range; "
                f"labels must be 0–{self.class_count - 1}"
            )


def _class_numbers(files: Sequence[RawImages]) -> Array:
    # Already checked to be small: the cast from any integer type is safe.
    return np.concatenate([raw.labels for raw in files], dtype=np.int64, casting="unsafe")


def shrunk(images: Array, by: int) -> Array:
    """Return images (n, height, width, …) with ``by`` × ``by`` pixels replaced by their mean.

    >>> shrunk(np.arange(4.0).reshape(1, 2, 2), 2)
    array([[[1.5]]])
    """
    if images.ndim < 3 or any(side % by for side in images.shape[1:3]):
        raise InputError(
            f"records of shape {images.shape[1:]} cannot be shrunk by {by}: it must divide the "
            "sides of the images"
        )
    count, height, width, *channels = images.shape
    blocks = images.reshape(count, height // by, by, width // by, by, *channels)
    means: Array = blocks.mean(axis=(2, 4), dtype=images.dtype)
    means.flags.writeable = False
    return means
