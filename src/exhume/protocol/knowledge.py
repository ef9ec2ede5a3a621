"""The adversary's knowledge before the release: everything it has, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from exhume.protocol.arrays import Array, FloatArray, frozen, frozen_mapping, require_finite
from exhume.protocol.errors import InputError
from exhume.protocol.records import Records
from exhume.protocol.schema import Schema

if TYPE_CHECKING:
    from exhume.protocol.mechanism import Mechanism


@dataclass(frozen=True, eq=False)
class KnownAttributes:
    """The known part of the target: ``mask`` (record shape, bool), ``values`` where it is true.

    Of a batch, ``values`` are those of every record (n, *record shape); the mask is one for all.
    """

    mask: Array
    values: Array

    def __post_init__(self) -> None:
        mask, values = frozen(self.mask, dtype=bool), np.asarray(self.values, dtype=np.float64)
        if mask.shape not in (values.shape, values.shape[1:]):
            raise InputError(f"mask {mask.shape} and values {values.shape} must have one shape")
        require_finite(values[..., mask], "known attributes")
        # Unknown values are set to zero, so that they can't leak to an attack by mistake.
        object.__setattr__(self, "mask", mask)
        object.__setattr__(self, "values", frozen(np.where(mask, values, 0.0)))

    def __repr__(self) -> str:
        """Return how many are known; the values are private."""
        return f"KnownAttributes({int(self.mask.sum())} of {self.mask.size})"


@dataclass(frozen=True, eq=False, kw_only=True)
class Knowledge:
    """The adversary's knowledge. The adversary lacks anything not listed.

    ``training`` is the mechanism itself, without the private data: architecture, loss and algorithm
    with their settings. ``value_range`` holds for every entry of a record. ``labels`` are those of
    the targets, ``target_weight`` is a target's weight in training. ``shadow_targets`` are records
    like the target that the adversary may train on. Its pool for guesses is ``fixed_set`` and
    ``shadow_targets`` together. One of the records in ``candidates`` is the target. ``schema`` says
    what the entries of a table's records mean.
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
    candidates: Records | None = None
    schema: Schema | None = None

    def __post_init__(self) -> None:
        for records in (self.fixed_set, self.shadow_targets, self.candidates):
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

    def __repr__(self) -> str:
        """Return what there is, with shapes and no value: a knowledge is private."""
        parts = [f"record_shape={self.record_shape}"]
        for name in ("fixed_set", "shadow_targets", "candidates"):
            records = getattr(self, name)
            if records is not None:
                parts.append(f"{name}={len(records)} records")
        if self.labels is not None:
            parts.append(f"labels={len(self.labels)}")
        if self.known_attributes is not None:
            known = int(self.known_attributes.mask.sum())
            parts.append(f"known_attributes={known} of {self.known_attributes.mask.size}")
        if self.training is not None:
            parts.append(f"training={type(self.training).__name__}")
        return f"Knowledge({', '.join(parts)})"

    @property
    def pool_size(self) -> int:
        """How many records the adversary already had."""
        return sum(len(r) for r in (self.fixed_set, self.shadow_targets) if r is not None)

    def pool(self) -> FloatArray:
        """All records the adversary already had, (n, *record shape); empty if it had none."""
        parts = [r.x for r in (self.fixed_set, self.shadow_targets) if r is not None]
        if not parts:
            return np.empty((0, *self.record_shape))
        return np.concatenate(parts).astype(np.float64)
