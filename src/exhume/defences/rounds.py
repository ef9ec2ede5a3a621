"""The same records sent in several rounds: what a defence by chance must withstand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exhume.arrays import Array
from exhume.defences.base import Defence
from exhume.errors import InputError
from exhume.mechanism import Mechanism
from exhume.records import Records
from exhume.release import Gradient, Release, Update, mapped_together

if TYPE_CHECKING:
    import dp_accounting


@dataclass(frozen=True, eq=False)
class Rounds(Defence):
    """What a server has after ``rounds`` in which the same records were sent, each protected anew.

    The parameters hardly move between them. An entry's value is the mean of those sent: where
    holes are drawn at random, others were sent each time.
    """

    inner: Mechanism
    rounds: int
    name: ClassVar[str] = "rounds"

    def __post_init__(self) -> None:
        if self.rounds < 2:
            raise InputError(f"rounds must be at least 2, got {self.rounds}")

    def publish(self, data: Records, *, rng: np.random.Generator) -> Release:
        """Publish so many times and return what the server makes of it."""
        found = [self.inner.publish(data, rng=rng) for _ in range(self.rounds)]
        first = found[0]
        if not isinstance(first, Gradient | Update):
            raise InputError("rounds are of gradients and updates")
        each = [dict(one.arrays()) for one in found]
        return mapped_together(
            first, lambda arrays: {n: _mean([e[n] for e in each]) for n in arrays}
        )

    def event(self, records: int) -> dp_accounting.DpEvent:
        """Return the inner event once a round."""
        import dp_accounting

        inner = self.inner.event(records)
        if isinstance(inner, dp_accounting.NonPrivateDpEvent):
            return inner
        return dp_accounting.SelfComposedDpEvent(inner, self.rounds)

    def describe(self) -> str:
        """Say what is done."""
        return f"sent in {self.rounds} rounds"


def _mean(sent: list[Array]) -> Array:
    """Return the mean over what was sent; 0 where nothing ever was."""
    values = np.stack(sent)
    times = np.maximum((values != 0).sum(axis=0), 1)
    found: Array = (values.sum(axis=0) / times).astype(values.dtype)
    return found
