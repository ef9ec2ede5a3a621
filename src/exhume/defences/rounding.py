"""Rounding what is released: a common half-measure, with no guarantee."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exhume.defences.base import Blurring
from exhume.errors import InputError
from exhume.mechanism import Mechanism
from exhume.records import Records
from exhume.release import Release, mapped

if TYPE_CHECKING:
    import dp_accounting


@dataclass(frozen=True)
class Rounding(Blurring):
    """Rounds every released number to ``decimals`` places."""

    inner: Mechanism
    decimals: int
    name: ClassVar[str] = "rounding"

    def __post_init__(self) -> None:
        if not 0 <= self.decimals <= 17:
            raise InputError(f"decimals must be from 0 to 17, got {self.decimals}")

    def publish(self, data: Records, *, rng: np.random.Generator) -> Release:
        """Publish the inner mechanism's release, rounded."""
        return self._rounded(self.inner.publish(data, rng=rng))

    def publish_each(
        self, fixed_set: Records, targets: Records, *, rngs: Sequence[np.random.Generator]
    ) -> Sequence[Release]:
        """Publish with each target in turn, sharing what the inner mechanism shares."""
        return [self._rounded(r) for r in self.inner.publish_each(fixed_set, targets, rngs=rngs)]

    def event(self, records: int) -> dp_accounting.DpEvent:
        """Rounding is post-processing: the event stays the inner mechanism's."""
        return self.inner.event(records)

    def deviation(self, records: int) -> float:
        """Return the deviation of a rounding error, uniform within half a unit."""
        return float(10.0**-self.decimals / np.sqrt(12.0))

    def describe(self) -> str:
        """Say what is done."""
        return f"rounded to {self.decimals} decimals"

    def _rounded(self, release: Release) -> Release:
        return mapped(release, lambda values: np.round(values, self.decimals))
