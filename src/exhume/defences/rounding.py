"""Rounding of the release: common, but without a guarantee."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from exhume.protocol.defence import Blurring
from exhume.protocol.limits import from_to
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.records import Records
from exhume.protocol.release import Release, mapped

if TYPE_CHECKING:
    import dp_accounting


@dataclass(frozen=True)
class Rounding(Blurring):
    """Rounds every released number to ``decimals`` places."""

    inner: Mechanism
    decimals: Annotated[int, from_to(0, 17)]
    name: ClassVar[str] = "rounding"
    shows_zeros: ClassVar[bool] = True

    def publish(self, data: Records, *, rng: np.random.Generator) -> Release:
        """Publish the inner mechanism's release, rounded."""
        return self._rounded(self.inner.publish(data, rng=rng))

    def publish_each(
        self, fixed_set: Records, targets: Records, *, rngs: Sequence[np.random.Generator]
    ) -> Sequence[Release]:
        """Publish with each target in turn, sharing the inner mechanism's work."""
        return [self._rounded(r) for r in self.inner.publish_each(fixed_set, targets, rngs=rngs)]

    def event(self, records: int) -> dp_accounting.DpEvent:
        """Rounding is post-processing: the event stays the inner mechanism's."""
        return self.inner.event(records)

    def deviation(self, records: int) -> float:
        """Return the deviation of a rounding error, uniform over one unit of the last place."""
        return float(10.0**-self.decimals / np.sqrt(12.0))

    def describe(self) -> str:
        """Return a short description."""
        return f"rounded to {self.decimals} decimals"

    def _rounded(self, release: Release) -> Release:
        return mapped(release, lambda values: np.round(values, self.decimals))
