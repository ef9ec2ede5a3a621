"""The attack protocol. An attack gets a release and knowledge; it never sees the truth."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import ClassVar, Generic, TypeVar, final

import numpy as np

from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.release import Release, non_finite
from exhume.protocol.seeds import Seed, generator

P = TypeVar("P")
"""What an attack reads from a release: all that it needs to rebuild records."""


class ThreatModel(Enum):
    """What an adversary has. The value is its description."""

    LINEAR_MODEL = "a linear model, and every training record but one"
    ESTIMATOR = "a fitted estimator, and every training record but one"
    NETWORK = "a trained network, and every training record but one"
    TRANSCRIPT = "the steps of a network's training, and every training record but one"
    GRADIENT = "the gradient or update of a batch"
    TABLE_GRADIENT = "the gradient or update of rows of a table with columns of several kinds"
    WEIGHTS_ALONE = "a trained network, and no training record"


SHADOW_TARGETS = "data.shadow_targets (knowledge.shadow_targets beside release.file)"
"""The key of an audit's file that gives the adversary records like the target."""


class Lacking(str):
    """A reason for a refusal that a further fact would remove; it ends with the key for that fact.

    >>> Lacking("needs the labels", "knowledge.labels")
    'needs the labels: add knowledge.labels'
    """

    def __new__(cls, reason: str, key: str) -> Lacking:
        """Return the reason, with the key of an audit's file that states the fact."""
        return super().__new__(cls, f"{reason}: add {key}")

    def __reduce__(self) -> tuple[object, ...]:
        """Let workers send the whole sentence back."""
        return _whole, (str(self),)


def _whole(sentence: str) -> Lacking:
    return str.__new__(Lacking, sentence)


class Attack(ABC):
    """A method that rebuilds records from a release.

    Subclasses are frozen dataclasses whose fields are the settings, with a ``name`` for the command
    line. They implement ``accepts`` and ``_reconstruct``. This class checks, refuses and clips to
    the known value range. ``_reconstruct_each`` may be overridden to share work.
    """

    name: ClassVar[str]
    baseline: ClassVar[bool] = False
    """True for guesses that ignore the release: an attack must beat them."""
    made_for: ClassVar[ThreatModel | None] = None
    """The threat model on which an audit runs the attack by default; None: only by name."""

    trainings: ClassVar[int] = 0
    """About how many trainings it repeats for a target, where they run one at a time."""

    @abstractmethod
    def accepts(self, release: Release, knowledge: Knowledge) -> str | None:
        """Return None if the attack applies, otherwise the reason why it doesn't."""

    @abstractmethod
    def _reconstruct(
        self, release: Release, knowledge: Knowledge, rng: np.random.Generator
    ) -> Reconstruction:
        """Rebuild records from a finite release that ``accepts`` has approved."""

    def _reconstruct_each(
        self,
        releases: Sequence[Release],
        knowledge: Sequence[Knowledge],
        rngs: Sequence[np.random.Generator],
    ) -> list[Reconstruction]:
        return [
            self._reconstruct(*arguments)
            for arguments in zip(releases, knowledge, rngs, strict=True)
        ]

    @final
    def reconstruct(self, release: Release, knowledge: Knowledge, *, rng: Seed) -> Reconstruction:
        """Rebuild records from this release. The same seed gives the same answer."""
        return self.reconstruct_each([release], [knowledge], rngs=[generator(rng)])[0]

    @final
    def reconstruct_each(
        self,
        releases: Sequence[Release],
        knowledge: Sequence[Knowledge],
        *,
        rngs: Sequence[np.random.Generator],
    ) -> list[Reconstruction]:
        """Attack independent releases, each with its own knowledge and random stream."""
        if not len(releases) == len(knowledge) == len(rngs):
            raise InputError(
                f"one knowledge and one stream per release: got {len(releases)} releases, "
                f"{len(knowledge)} knowledge, {len(rngs)} streams"
            )
        bad = [non_finite(release) for release in releases]
        finite = [i for i, name in enumerate(bad) if name is None]
        found = self._answer_each(
            [releases[i] for i in finite], [knowledge[i] for i in finite], [rngs[i] for i in finite]
        )
        answers = dict(zip(finite, found, strict=True))
        return [
            _checked(answers[i], one)
            if name is None
            else nothing(one, Status.INVALID_RELEASE, f"'{name}' is not finite")
            for i, (name, one) in enumerate(zip(bad, knowledge, strict=True))
        ]

    def _answer_each(
        self,
        releases: Sequence[Release],
        knowledge: Sequence[Knowledge],
        rngs: Sequence[np.random.Generator],
    ) -> list[Reconstruction]:
        """Refuse or attack releases, all of them finite."""
        reasons = [self.accepts(*pair) for pair in zip(releases, knowledge, strict=True)]
        todo = [i for i, reason in enumerate(reasons) if reason is None]
        found = self._reconstruct_each(
            [releases[i] for i in todo], [knowledge[i] for i in todo], [rngs[i] for i in todo]
        )
        answers = dict(zip(todo, found, strict=True))
        return [
            answers[i] if reason is None else refused(one, reason)
            for i, (reason, one) in enumerate(zip(reasons, knowledge, strict=True))
        ]


@dataclass(frozen=True)
class Refusal:
    """The reason why an attack does not apply to a release."""

    reason: str


class ParsedAttack(Attack, Generic[P]):
    """An attack that reads each release once, into a problem to solve.

    Subclasses write ``parse`` and ``_solve`` instead of ``accepts`` and ``_reconstruct``.
    """

    @abstractmethod
    def parse(self, release: Release, knowledge: Knowledge) -> P | Refusal:
        """Return the problem in a finite release, or why the attack doesn't apply."""

    @abstractmethod
    def _solve(self, problem: P, rng: np.random.Generator) -> Reconstruction:
        """Rebuild the records of a problem."""

    @final
    def accepts(self, release: Release, knowledge: Knowledge) -> str | None:
        """Return None if the attack applies, otherwise the reason why it doesn't."""
        problem = self.parse(release, knowledge)
        return problem.reason if isinstance(problem, Refusal) else None

    @final
    def _reconstruct(
        self, release: Release, knowledge: Knowledge, rng: np.random.Generator
    ) -> Reconstruction:
        problem = self.parse(release, knowledge)
        if isinstance(problem, Refusal):
            return refused(knowledge, problem.reason)
        return self._solve(problem, rng)

    def _answer_each(
        self,
        releases: Sequence[Release],
        knowledge: Sequence[Knowledge],
        rngs: Sequence[np.random.Generator],
    ) -> list[Reconstruction]:
        return [self._reconstruct(*one) for one in zip(releases, knowledge, rngs, strict=True)]


class GroupedAttack(ParsedAttack[P]):
    """An attack that solves problems together if they share work.

    Subclasses write ``_group_key`` and ``_solve_group`` instead of ``_solve``.
    """

    @abstractmethod
    def _group_key(self, problem: P) -> Hashable:
        """Return what problems of one group have in common."""

    @abstractmethod
    def _solve_group(
        self, problems: Sequence[P], rngs: Sequence[np.random.Generator]
    ) -> list[Reconstruction]:
        """Rebuild the records of problems with one key, in their order."""

    @final
    def _solve(self, problem: P, rng: np.random.Generator) -> Reconstruction:
        return self._solve_group([problem], [rng])[0]

    @final
    def _answer_each(
        self,
        releases: Sequence[Release],
        knowledge: Sequence[Knowledge],
        rngs: Sequence[np.random.Generator],
    ) -> list[Reconstruction]:
        answers: dict[int, Reconstruction] = {}
        groups: dict[Hashable, dict[int, P]] = {}
        for i, (release, one) in enumerate(zip(releases, knowledge, strict=True)):
            problem = self.parse(release, one)
            if isinstance(problem, Refusal):
                answers[i] = refused(one, problem.reason)
            else:
                groups.setdefault(self._group_key(problem), {})[i] = problem
        for members in groups.values():
            found = self._solve_group(list(members.values()), [rngs[i] for i in members])
            answers |= zip(members, found, strict=True)
        return [answers[i] for i in range(len(releases))]


def refused(knowledge: Knowledge, reason: str) -> Reconstruction:
    """Return a reconstruction without candidates: it does not apply, or a fact is missing."""
    missing = isinstance(reason, Lacking)
    return nothing(knowledge, Status.UNINFORMED if missing else Status.REFUSED, reason)


def nothing(knowledge: Knowledge, status: Status, message: str) -> Reconstruction:
    """Return a reconstruction without candidates, with the reason."""
    return Reconstruction(np.empty((0, *knowledge.record_shape)), status, message=message)


def _checked(reconstruction: Reconstruction, knowledge: Knowledge) -> Reconstruction:
    samples = reconstruction.samples
    if not np.isfinite(samples).all():
        return nothing(knowledge, Status.NOT_CONVERGED, "the candidates are not finite numbers")
    if not len(samples):
        return reconstruction
    if knowledge.schema is not None:
        # Whatever an attack returns of a table, it returns as a row that a table can hold.
        samples = knowledge.schema.snap(samples)
    if knowledge.value_range is not None:
        samples = np.clip(samples, *knowledge.value_range)
    if samples is reconstruction.samples:
        return reconstruction
    return replace(reconstruction, samples=samples)
