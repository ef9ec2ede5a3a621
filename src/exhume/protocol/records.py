"""Data records: the training data of a mechanism, or records that an adversary knows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exhume.protocol.arrays import Array, frozen, require_finite
from exhume.protocol.errors import InputError


@dataclass(frozen=True, eq=False)
class Records:
    """``n`` records: ``x`` (n, *record shape), labels ``y`` (n,), weights in training (n,).

    All arrays are read-only. Labels are numbers or strings; missing weights are 1.
    """

    x: Array
    y: Array | None = None
    weight: Array | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "x", frozen(self.x))
        if self.x.ndim < 2:
            raise InputError(f"records need shape (n, features, ...), got {self.x.shape}")
        require_finite(self.x, "x")
        for name in ("y", "weight"):
            values = getattr(self, name)
            if values is None:
                continue
            values = frozen(values)
            if values.shape != (len(self.x),):
                raise InputError(f"{name} needs shape ({len(self.x)},) like x, got {values.shape}")
            require_finite(values, name)
            object.__setattr__(self, name, values)

    def __repr__(self) -> str:
        """Return the shapes alone: the values are private."""
        labels = "" if self.y is None else ", with labels"
        return f"Records({len(self.x)} of shape {self.record_shape}{labels})"

    def __len__(self) -> int:
        return len(self.x)

    @property
    def record_shape(self) -> tuple[int, ...]:
        """The shape of one record."""
        return tuple(self.x.shape[1:])

    @property
    def labels(self) -> Array:
        """Return ``y``; raises InputError if there is none."""
        if self.y is None:
            raise InputError("these records have no labels (y), but labels are needed here")
        return self.y

    def take(self, index: Array | slice | list[int]) -> Records:
        """Return the records at ``index``, in that order."""
        y, weight = self.y, self.weight
        return Records(
            self.x[index],
            None if y is None else y[index],
            None if weight is None else weight[index],
        )

    def with_record(self, target: Records) -> Records:
        """Return these records followed by ``target`` (one or more records)."""
        if target.record_shape != self.record_shape:
            raise InputError(
                f"the target has shape {target.record_shape}, the records {self.record_shape}"
            )
        weight = None
        if self.weight is not None or target.weight is not None:
            weight = np.concatenate([_weights(self), _weights(target)])
        y = None if self.y is None else np.concatenate([self.y, target.labels])
        return Records(np.concatenate([self.x, target.x]), y, weight)


def _weights(records: Records) -> Array:
    return np.ones(len(records)) if records.weight is None else records.weight
