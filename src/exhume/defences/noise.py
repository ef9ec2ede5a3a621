"""Gaussian noise of a stated size on what is released, without a guarantee."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exhume.defences.base import Blurring, require_positive
from exhume.mechanism import Mechanism
from exhume.records import Records
from exhume.release import Release, mapped

if TYPE_CHECKING:
    import dp_accounting


@dataclass(frozen=True)
class Noise(Blurring):
    """Adds independent Gaussian noise of deviation ``size`` to every released number.

    Where something inside bounds how far one record can move the release (``sensitivity``), a
    guarantee follows. Without, none does from the size alone: the event stays the inner one's.
    """

    inner: Mechanism
    size: float
    name: ClassVar[str] = "noise"

    def __post_init__(self) -> None:
        require_positive("size", self.size)

    def publish(self, data: Records, *, rng: np.random.Generator) -> Release:
        """Publish the inner mechanism's release with noise on it."""
        return self._blurred(self.inner.publish(data, rng=rng), rng)

    def publish_each(
        self, fixed_set: Records, targets: Records, *, rngs: Sequence[np.random.Generator]
    ) -> Sequence[Release]:
        """Publish with each target in turn; noise is each one's own."""
        releases = self.inner.publish_each(fixed_set, targets, rngs=rngs)
        return [self._blurred(r, rng) for r, rng in zip(releases, rngs, strict=True)]

    def event(self, records: int) -> dp_accounting.DpEvent:
        """Return a Gaussian mechanism where one record's influence is bounded, else the inner one.

        What is private already stays as private: more noise is post-processing.
        """
        import dp_accounting

        inner, moved = self.inner.event(records), self.inner.sensitivity(records)
        if moved is None or not isinstance(inner, dp_accounting.NonPrivateDpEvent):
            return inner
        return dp_accounting.GaussianDpEvent(self.size / moved)

    def deviation(self, records: int) -> float:
        """Return the size."""
        return self.size

    def describe(self) -> str:
        """Say what is done."""
        return f"Gaussian noise of {self.size:g} on every number"

    def _blurred(self, release: Release, rng: np.random.Generator) -> Release:
        return mapped(release, lambda values: values + rng.normal(0.0, self.size, values.shape))
