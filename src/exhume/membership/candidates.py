"""What may have been trained on beside the fixed set: the question of a membership attack."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from exhume.errors import InputError
from exhume.records import Records


class Against(Enum):
    """What was trained on where the challenge was not. The value is what a report says."""

    NOTHING = "nothing in its place"
    ANOTHER_RECORD = "another record in its place"


@dataclass(frozen=True, eq=False)
class Candidates:
    """The question whether ``challenge`` (one record) was trained on, or one of ``alternatives``.

    One alternative makes the pair z₀, z₁ of Balle et al. 2022, Algorithm 2; of several, each is as
    likely as the others; without any, the fixed set was trained on alone. The adversary knows all
    of them, labels included.

    >>> import numpy as np
    >>> Candidates.pair(Records(np.array([[0.0], [1.0]]))).challenge.x
    array([[1.]])
    """

    challenge: Records
    alternatives: Records | None = None

    def __post_init__(self) -> None:
        if len(self.challenge) != 1:
            raise InputError(f"the challenge is one record, got {len(self.challenge)}")
        others = self.alternatives
        if others is None:
            return
        if len(others) == 0:
            raise InputError("alternatives must hold a record; None means nothing in its place")
        if others.record_shape != self.challenge.record_shape:
            raise InputError(
                f"alternatives have shape {others.record_shape}, the challenge "
                f"{self.challenge.record_shape}"
            )
        if (others.y is None) != (self.challenge.y is None):
            raise InputError("either the challenge and its alternatives all have labels, or none")

    @classmethod
    def pair(cls, records: Records) -> Candidates:
        """Return the question of Algorithm 2 for two records: z₀, then z₁ (the challenge)."""
        if len(records) != 2:
            raise InputError(f"a pair is two records, got {len(records)}")
        return cls(records.take([1]), records.take([0]))

    @property
    def against(self) -> Against:
        """What the challenge is told apart from."""
        return Against.NOTHING if self.alternatives is None else Against.ANOTHER_RECORD

    @property
    def records(self) -> Records:
        """The challenge, then its alternatives."""
        others = self.alternatives
        return self.challenge if others is None else self.challenge.with_record(others)
