"""What the adversary knew before the release: everything it has, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from exhume.arrays import Array, FloatArray, frozen, frozen_mapping, require_finite
from exhume.errors import InputError
from exhume.records import Records

if TYPE_CHECKING:
    from exhume.mechanism import Mechanism


@dataclass(frozen=True, eq=False)
class KnownAttributes:
    """Part of the target known beforehand: ``mask`` (record shape, bool), ``values`` where true."""

    mask: Array
    values: Array

    def __post_init__(self) -> None:
        mask, values = frozen(self.mask, dtype=bool), np.asarray(self.values, dtype=np.float64)
        if mask.shape != values.shape:
            raise InputError(f"mask {mask.shape} and values {values.shape} must have one shape")
        require_finite(values[mask], "known attributes")
        # What is not known is wiped, so that it can't travel along by mistake.
        object.__setattr__(self, "mask", mask)
        object.__setattr__(self, "values", frozen(np.where(mask, values, 0.0)))


@dataclass(frozen=True, eq=False, kw_only=True)
class Knowledge:
    """What the adversary knew: leave out what it hasn't.

    ``training`` is the mechanism itself, without the private data: architecture, loss and algorithm
    with their settings. ``value_range`` holds for every entry of a record. ``labels`` are the
    targets' own, ``target_weight`` a target's weight in training. ``shadow_targets`` are records
    like the target that it may train on; the pool it could have guessed from is ``fixed_set`` and
    ``shadow_targets`` together.
    """

    record_shape: tuple[int, ...]
    value_range: tuple[float, float] | None = None
    training: Mechanism | None = None
    fixed_set: Records | None = None
    shadow_targets: Records | None = None
    labels: Array | None = None
    target_weight: float = 1.0
    known_attributes: KnownAttributes | None = None
    initial: Mapping[str, Array] | None = None
    batch_norm: Mapping[str, Array] | None = None

    def __post_init__(self) -> None:
        for records in (self.fixed_set, self.shadow_targets):
            if records is not None and records.record_shape != self.record_shape:
                raise InputError(
                    f"records of shape {records.record_shape} given, "
                    f"but a record has shape {self.record_shape}"
                )
        known = self.known_attributes
        if known is not None and known.mask.shape != self.record_shape:
            raise InputError(
                f"known attributes have shape {known.mask.shape}, a record {self.record_shape}"
            )
        if self.value_range is not None and not self.value_range[0] < self.value_range[1]:
            raise InputError(f"value_range must be (low, high) with low < high: {self.value_range}")
        if self.labels is not None:
            object.__setattr__(self, "labels", frozen(self.labels))
        for name in ("initial", "batch_norm"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, frozen_mapping(getattr(self, name)))

    def pool(self) -> FloatArray:
        """Every record the adversary already had, (n, *record shape); empty where it had none."""
        parts = [r.x for r in (self.fixed_set, self.shadow_targets) if r is not None]
        if not parts:
            return np.empty((0, *self.record_shape))
        return np.concatenate(parts).astype(np.float64)
