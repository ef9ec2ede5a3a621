"""A mechanism maps data to a release. It includes its own privacy accounting."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from exhume.protocol.arrays import FloatArray
from exhume.protocol.records import Records
from exhume.protocol.release import Release

if TYPE_CHECKING:
    import dp_accounting
    import numpy as np


class Mechanism(ABC):
    """Maps records to a release. Subclasses are frozen dataclasses: their fields are settings.

    A mechanism is public: an adversary may know it completely (``Knowledge.training``). The private
    data passes only through ``publish``.
    """

    shows_zeros: ClassVar[bool] = False
    """Whether an entry that is 0 before this layer is 0 after it."""
    keeps_largest: ClassVar[bool] = False
    """Whether the entries that are sent are the largest ones, which bounds the others."""

    @property
    def wrapped(self) -> Mechanism | None:
        """The mechanism inside this one; None at the core."""
        return None

    @abstractmethod
    def publish(self, data: Records, *, rng: np.random.Generator) -> Release:
        """Train on ``data`` (or take a step, or answer queries) and return the release."""

    def publish_each(
        self, fixed_set: Records, targets: Records, *, rngs: Sequence[np.random.Generator]
    ) -> Sequence[Release]:
        """Publish on ``fixed_set`` plus each target in turn: one release and stream per target.

        Mechanisms that can share work between releases override this. A release must not depend
        on the other targets.
        """
        return [
            self.publish(fixed_set.with_record(targets.take([i])), rng=rng)
            for i, rng in enumerate(rngs)
        ]

    def event(self, records: int) -> dp_accounting.DpEvent:
        """Return the event for a privacy accountant, for data of ``records`` with the target.

        Neighbouring data sets differ by the presence of one record.
        """
        import dp_accounting

        return dp_accounting.NonPrivateDpEvent()

    def sampled_event(self, records: int, rate: float) -> dp_accounting.DpEvent:
        """Return the event if each record takes part with probability ``rate``, in secret.

        Amplification by sampling needs its own proof: mechanisms without one claim nothing.
        """
        import dp_accounting

        return dp_accounting.NonPrivateDpEvent()

    def noise_alone(self, records: int) -> float:
        """Return the standard deviation of what is sent if no record takes part.

        ``records`` is the number that is expected to take part.
        """
        return 0.0

    def sensitivity(self, records: int) -> float | None:
        """Return the largest change of the release by one record, as a Euclidean norm.

        Returns None if there is no bound. The number of ``records`` counts as public.
        """
        return None

    @property
    def hides_draws(self) -> bool:
        """Whether this layer draws random numbers that an adversary does not know."""
        return False

    def deviations(self, arrays: Mapping[str, FloatArray], records: int) -> dict[str, float]:
        """Return the deviation of known noise on the entries of each parameter that were sent.

        ``arrays`` are what was released about ``records``. Rounding to a float or to a grid counts
        as noise. Random holes and drawn shares do not.
        """
        return dict.fromkeys(arrays, 0.0)

    def withheld_limits(self, arrays: Mapping[str, FloatArray]) -> dict[str, float | None]:
        """Return a known limit on the entries that were not sent, or None if there is none."""
        return dict.fromkeys(arrays)

    def under_noise(self, records: int) -> tuple[Mechanism, float] | None:
        """Return what Gaussian noise is added to, and the deviation that the adversary knows.

        Returns None without noise of known size. Any processing after the noise can only lose
        information.
        """
        return None


def layers(mechanism: Mechanism) -> tuple[Mechanism, ...]:
    """Return a mechanism and all mechanisms inside it, the outermost first, the core last."""
    found = [mechanism]
    while (inner := found[-1].wrapped) is not None:
        found.append(inner)
    return tuple(found)
