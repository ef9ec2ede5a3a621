"""The membership protocol: an attack prepares a judge, and the judge decides on a release."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from exhume.bounds.membership import Against
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Status
from exhume.protocol.records import Records
from exhume.protocol.release import Release, non_finite
from exhume.protocol.seeds import Seed, generator


@dataclass(frozen=True)
class MembershipVerdict:
    """The verdict of an attack on one release.

    ``score`` is the evidence that the challenge was trained on: above 0 for, below 0 against. It is
    a log-likelihood ratio if the attack has one. ``member`` is the decision. If the evidence is 0
    or the attack did not run (``status``), a fair coin decides.
    """

    member: bool
    score: float
    status: Status = Status.CONVERGED


class MembershipJudge(ABC):
    """A test that is fixed before it sees a release, for one fixed set and its candidates."""

    @abstractmethod
    def _weigh(self, release: Release, rng: np.random.Generator) -> tuple[float, Status]:
        """Return the score of a finite release, and the status of the attack."""

    @final
    def weigh(self, release: Release, *, rng: Seed) -> MembershipVerdict:
        """Decide whether the challenge was trained on."""
        rng = generator(rng)
        coin = bool(rng.integers(2))
        if non_finite(release) is not None:
            return MembershipVerdict(coin, 0.0, Status.INVALID_RELEASE)
        score, status = self._weigh(release, rng)
        if score == 0.0 or not np.isfinite(score):
            return MembershipVerdict(coin, 0.0, status)
        return MembershipVerdict(score > 0.0, float(score), status)


class MembershipAttack(ABC):
    """The M of Balle et al. 2022, Algorithm 2. Subclasses are frozen dataclasses.

    It knows the release, the fixed set, the training algorithm and the candidates, but not which of
    them was trained on. Work that does not need the release is done in ``_prepare``.
    """

    name: ClassVar[str]

    @abstractmethod
    def accepts(self, knowledge: Knowledge, candidates: MembershipQuestion) -> str | None:
        """Return None if the attack applies, otherwise the reason why it doesn't."""

    @abstractmethod
    def _prepare(
        self, knowledge: Knowledge, candidates: MembershipQuestion, rng: np.random.Generator
    ) -> MembershipJudge:
        """Return the judge for a question that ``accepts`` has approved."""

    @final
    def prepare(
        self, knowledge: Knowledge, candidates: MembershipQuestion, *, rng: Seed
    ) -> MembershipJudge:
        """Return the judge of any number of releases; raises InputError if it does not apply."""
        shape = candidates.challenge.record_shape
        if shape != knowledge.record_shape:
            raise InputError(f"candidates have shape {shape}, a record {knowledge.record_shape}")
        reason = self.accepts(knowledge, candidates)
        if reason is not None:
            raise InputError(f"{self.name} does not apply: {reason}")
        return self._prepare(knowledge, candidates, generator(rng))


def uninformed(knowledge: Knowledge) -> str | None:
    """Return what the informed adversary lacks, or None."""
    if knowledge.training is None:
        return "needs to know the training algorithm"
    if knowledge.fixed_set is None:
        return "needs the fixed set, every training record but one"
    return None


@dataclass(frozen=True, eq=False)
class MembershipQuestion:
    """The question whether ``challenge`` (one record) was trained on, or one of ``alternatives``.

    One alternative makes the pair z₀, z₁ of Balle et al. 2022, Algorithm 2. Several alternatives
    are equally likely. Without any, the other case is the fixed set alone. The adversary knows all
    of them, including their labels.

    >>> import numpy as np
    >>> MembershipQuestion.pair(Records(np.array([[0.0], [1.0]]))).challenge.x
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
            raise InputError("alternatives need at least one record; None means no replacement")
        if others.record_shape != self.challenge.record_shape:
            raise InputError(
                f"alternatives have shape {others.record_shape}, the challenge "
                f"{self.challenge.record_shape}"
            )
        if (others.y is None) != (self.challenge.y is None):
            raise InputError("either the challenge and its alternatives all have labels, or none")

    @classmethod
    def pair(cls, records: Records) -> MembershipQuestion:
        """Return the question of Algorithm 2 for two records: z₀, then z₁ (the challenge)."""
        if len(records) != 2:
            raise InputError(f"a pair is two records, got {len(records)}")
        return cls(records.take([1]), records.take([0]))

    @property
    def against(self) -> Against:
        """What the challenge is compared with."""
        return Against.NOTHING if self.alternatives is None else Against.ANOTHER_RECORD

    @property
    def records(self) -> Records:
        """The challenge, then its alternatives."""
        others = self.alternatives
        return self.challenge if others is None else self.challenge.with_record(others)
