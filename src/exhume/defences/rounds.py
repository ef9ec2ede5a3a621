"""The same records sent in several rounds: a test for random defences."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.defence import Defence, Place, ReleaseOf, SimulatedInner
from exhume.protocol.errors import InputError
from exhume.protocol.limits import at_least
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.records import Records
from exhume.protocol.release import Gradient, Release, Update, mapped_together

if TYPE_CHECKING:
    import dp_accounting
    import torch

_DRAWS = 4
"""The number of rounds simulated with separate draws; more would hardly change the mean."""


@dataclass(frozen=True, eq=False)
class Rounds(Defence):
    """What a server has after ``rounds`` releases of the same records, each protected separately.

    The parameters hardly move between them. The value of an entry is the mean of the sent ones:
    random dropout sends other entries each time.
    """

    inner: Mechanism
    rounds: Annotated[int, at_least(2)]
    name: ClassVar[str] = "rounds"
    place: ClassVar[Place] = Place.SENT
    shows_zeros: ClassVar[bool] = True

    def publish(self, data: Records, *, rng: np.random.Generator) -> Release:
        """Publish in every round and return the server's mean."""
        found = [self.inner.publish(data, rng=rng) for _ in range(self.rounds)]
        first = found[0]
        if not isinstance(first, Gradient | Update):
            raise InputError("rounds need gradients or updates")
        each = [dict(one.arrays()) for one in found]
        return mapped_together(
            first, lambda arrays: {n: _mean([e[n] for e in each]) for n in arrays}
        )

    def event(self, records: int) -> dp_accounting.DpEvent:
        """Return the inner event once per round."""
        import dp_accounting

        inner = self.inner.event(records)
        if isinstance(inner, dp_accounting.NonPrivateDpEvent):
            return inner
        return dp_accounting.SelfComposedDpEvent(inner, self.rounds)

    def simulated_release(self, inner: SimulatedInner) -> ReleaseOf:
        """Return the mean over rounds with separate draws of the inner mechanism."""
        if not inner.drawn:
            return inner.release

        def release(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
            import torch

            found = [inner.release(x, y) for _ in range(min(self.rounds, _DRAWS))]
            return tuple(torch.stack(values).mean(dim=0) for values in zip(*found, strict=True))

        return release

    def deviations(self, arrays: Mapping[str, FloatArray], records: int) -> dict[str, float]:
        """Return the inner deviations: the noise of the rounds averages out."""
        inner = super().deviations(arrays, records)
        return {n: s / math.sqrt(self.rounds) for n, s in inner.items()}

    @property
    def hides_draws(self) -> bool:
        """Return True: every round has separate draws."""
        return True

    def under_noise(self, records: int) -> tuple[Mechanism, float] | None:
        """Return the inner noise, averaged over the rounds."""
        found = self.inner.under_noise(records)
        return None if found is None else (found[0], found[1] / math.sqrt(self.rounds))

    def in_one_round(self, inner: Mechanism) -> Mechanism:
        """Return ``inner``: the training has its own rounds."""
        return inner

    def describe(self) -> str:
        """Return a short description."""
        return f"sent in {self.rounds} rounds"


def _mean(sent: list[Array]) -> Array:
    """Return the mean over the sent entries; 0 if an entry was never sent."""
    values = np.stack(sent)
    times = np.maximum((values != 0).sum(axis=0), 1)
    found: Array = (values.sum(axis=0) / times).astype(values.dtype)
    return found
