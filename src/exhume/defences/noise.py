"""Gaussian noise of a stated size on what is released, without a guarantee."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exhume.protocol.defence import Blurring
from exhume.protocol.limits import Positive
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.records import Records
from exhume.protocol.release import Release, mapped

if TYPE_CHECKING:
    import dp_accounting


@dataclass(frozen=True)
class Noise(Blurring):
    """Adds independent Gaussian noise of deviation ``size`` to every released number.

    If an inner layer bounds the change of the release by one record (``sensitivity``), a guarantee
    follows. Otherwise the size alone gives none, and the event is the inner one's.
    """

    inner: Mechanism
    size: Positive
    name: ClassVar[str] = "noise"

    def publish(self, data: Records, *, rng: np.random.Generator) -> Release:
        """Publish the inner mechanism's release with noise."""
        return self._blurred(self.inner.publish(data, rng=rng), rng)

    def publish_each(
        self, fixed_set: Records, targets: Records, *, rngs: Sequence[np.random.Generator]
    ) -> Sequence[Release]:
        """Publish with each target in turn, with separate noise."""
        releases = self.inner.publish_each(fixed_set, targets, rngs=rngs)
        return [self._blurred(r, rng) for r, rng in zip(releases, rngs, strict=True)]

    def event(self, records: int) -> dp_accounting.DpEvent:
        """Return a Gaussian mechanism if one record's influence is bounded, else the inner event.

        An inner guarantee still holds: more noise is post-processing.
        """
        import dp_accounting

        inner, moved = self.inner.event(records), self.inner.sensitivity(records)
        if moved is None or not isinstance(inner, dp_accounting.NonPrivateDpEvent):
            return inner
        return dp_accounting.GaussianDpEvent(self.size / moved)

    def deviation(self, records: int) -> float:
        """Return the size."""
        return self.size

    @property
    def hides_draws(self) -> bool:
        """Return True: the noise is secret."""
        return True

    def under_noise(self, records: int) -> tuple[Mechanism, float]:
        """Return the inner mechanism and the size."""
        return self.inner, self.size

    def describe(self) -> str:
        """Return a short description."""
        return f"Gaussian noise of {self.size:g} on every number"

    def _blurred(self, release: Release, rng: np.random.Generator) -> Release:
        return mapped(release, lambda values: values + rng.normal(0.0, self.size, values.shape))
