"""The membership protocol: an attack prepares a judge, the judge weighs a release."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from exhume.errors import InputError
from exhume.knowledge import Knowledge
from exhume.membership.candidates import Candidates
from exhume.reconstruction import Status
from exhume.release import Release, non_finite
from exhume.seeds import Seed, generator


@dataclass(frozen=True)
class Verdict:
    """What an attack says of one release.

    ``score`` is the evidence that the challenge was trained on: above 0 for, below 0 against; a
    log-likelihood ratio where the attack has one. ``member`` is the decision. Where the evidence
    is 0, or the attack did not run (``status``), a fair coin decides.
    """

    member: bool
    score: float
    status: Status = Status.CONVERGED


class Judge(ABC):
    """A test that is fixed before it sees a release, for one fixed set and its candidates."""

    @abstractmethod
    def _weigh(self, release: Release, rng: np.random.Generator) -> tuple[float, Status]:
        """Return the score of a finite release, and how the attack ended."""

    @final
    def weigh(self, release: Release, *, rng: Seed) -> Verdict:
        """Decide whether the challenge was trained on."""
        rng = generator(rng)
        coin = bool(rng.integers(2))
        if non_finite(release) is not None:
            return Verdict(coin, 0.0, Status.INVALID_RELEASE)
        score, status = self._weigh(release, rng)
        if score == 0.0 or not np.isfinite(score):
            return Verdict(coin, 0.0, status)
        return Verdict(score > 0.0, float(score), status)


class MembershipAttack(ABC):
    """The M of Balle et al. 2022, Algorithm 2. Subclasses are frozen dataclasses.

    It has the release, the fixed set, the training algorithm and the candidates, and never which
    of these was trained on. What it can do before the release is out, it does in ``_prepare``.
    """

    name: ClassVar[str]

    @abstractmethod
    def accepts(self, knowledge: Knowledge, candidates: Candidates) -> str | None:
        """Return None if the attack applies, otherwise the reason why it doesn't."""

    @abstractmethod
    def _prepare(
        self, knowledge: Knowledge, candidates: Candidates, rng: np.random.Generator
    ) -> Judge:
        """Return the judge for a question that ``accepts`` has admitted."""

    @final
    def prepare(self, knowledge: Knowledge, candidates: Candidates, *, rng: Seed) -> Judge:
        """Return the judge of any number of releases; InputError where the attack can't run."""
        shape = candidates.challenge.record_shape
        if shape != knowledge.record_shape:
            raise InputError(f"candidates have shape {shape}, a record {knowledge.record_shape}")
        reason = self.accepts(knowledge, candidates)
        if reason is not None:
            raise InputError(f"{self.name} does not apply: {reason}")
        return self._prepare(knowledge, candidates, generator(rng))

    @final
    def decide(
        self, release: Release, knowledge: Knowledge, candidates: Candidates, *, rng: Seed
    ) -> Verdict:
        """Decide about a single release. The same seed gives the same verdict."""
        rng = generator(rng)
        return self.prepare(knowledge, candidates, rng=rng).weigh(release, rng=rng)


def uninformed(knowledge: Knowledge) -> str | None:
    """Say what an informed adversary lacks, or return None."""
    if knowledge.training is None:
        return "needs to know the training algorithm"
    if knowledge.fixed_set is None:
        return "needs the fixed set, every training record but one"
    return None
