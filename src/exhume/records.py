"""Data records: what a mechanism is trained on, and what an adversary may know of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exhume.arrays import Array, frozen, require_finite
from exhume.errors import InputError


@dataclass(frozen=True, eq=False)
class Records:
    """``n`` records: ``x`` of shape (n, *record shape) and, where there are any, ``y`` of shape (n,).

    Both arrays are read-only. Class labels are integers, responses of a regression floats.
    """

    x: Array
    y: Array | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "x", frozen(self.x))
        if self.x.ndim < 2:
            raise InputError(f"records need shape (n, features, ...), got {self.x.shape}")
        require_finite(self.x, "x")
        if self.y is None:
            return
        object.__setattr__(self, "y", frozen(self.y))
        if self.y.shape != (len(self.x),):
            raise InputError(f"y must have shape ({len(self.x)},) to go with x, got {self.y.shape}")
        require_finite(self.y, "y")

    def __len__(self) -> int:
        return len(self.x)

    @property
    def record_shape(self) -> tuple[int, ...]:
        """The shape of one record."""
        return tuple(self.x.shape[1:])

    @property
    def labels(self) -> Array:
        """``y``, or an InputError where there is none."""
        if self.y is None:
            raise InputError("these records have no labels (y), and labels are needed here")
        return self.y

    def take(self, index: Array | slice | list[int]) -> Records:
        """Return the records at ``index``, in that order."""
        return Records(self.x[index], None if self.y is None else self.y[index])

    def with_record(self, target: Records) -> Records:
        """Return these records and ``target`` (one or more records) after them."""
        if target.record_shape != self.record_shape:
            raise InputError(
                f"the target has shape {target.record_shape}, the records {self.record_shape}"
            )
        x = np.concatenate([self.x, target.x])
        return Records(x, None if self.y is None else np.concatenate([self.y, target.labels]))
