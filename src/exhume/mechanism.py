"""Data in, release out. A mechanism carries its own privacy accounting."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from exhume.records import Records
from exhume.release import Release

if TYPE_CHECKING:
    import dp_accounting
    import numpy as np


class Mechanism(ABC):
    """Turns records into a release. Subclasses are frozen dataclasses: their fields are settings.

    A mechanism is public: an adversary may know it whole (``Knowledge.training``). The private data
    only ever passes through ``publish``.
    """

    @abstractmethod
    def publish(self, data: Records, *, rng: np.random.Generator) -> Release:
        """Train on ``data`` (or take a step, or answer queries) and return what is released."""

    def publish_each(
        self, fixed_set: Records, targets: Records, *, rngs: Sequence[np.random.Generator]
    ) -> Sequence[Release]:
        """Publish on ``fixed_set`` with each target added in turn: a release, a stream a target.

        Mechanisms that can share work between releases override this; a release must not depend
        on the other targets.
        """
        return [
            self.publish(fixed_set.with_record(targets.take([i])), rng=rng)
            for i, rng in enumerate(rngs)
        ]

    def event(self, records: int) -> dp_accounting.DpEvent:
        """What an accountant needs to know, with ``records`` in the data (the target included).

        Neighbouring data sets differ in one record being there or not.
        """
        import dp_accounting

        return dp_accounting.NonPrivateDpEvent()

    def sensitivity(self, records: int) -> float | None:
        """Return how far one record there or not can move the release, as a Euclidean norm.

        None where nothing bounds it. The number of ``records`` counts as public.
        """
        return None
