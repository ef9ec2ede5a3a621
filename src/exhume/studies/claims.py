"""The claims of a paper about its figures, and whether a run confirms them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from exhume.stats.differences import difference
from exhume.stats.interval import LEVEL, Interval, point
from exhume.studies.reading import (
    STRONGEST,
    StudyReading,
    StudyRun,
    exact,
    shown,
    worked,
)


class Kind(Enum):
    """The verdict of a row."""

    CONFIRMED = "confirmed"
    NOT_CONFIRMED = "not confirmed"
    UNDECIDED = "undecided"
    DID_NOT_WORK = "did not work at this size"


@dataclass(frozen=True)
class ClaimVerdict:
    """The verdict of a row with its reason. ``idle`` is the setting and attack that did not work.

    ``estimated`` tells a verdict from targets, which another draw of them might change.
    """

    kind: Kind
    reason: str
    idle: tuple[str, str] | None = None
    estimated: bool = True

    @property
    def decided(self) -> bool:
        """Whether the claim held or failed."""
        return self.kind in (Kind.CONFIRMED, Kind.NOT_CONFIRMED)


@dataclass(frozen=True)
class Needs:
    """The size below which a failed claim is no evidence: ``quantity`` at least ``least``."""

    quantity: str
    least: float
    why: str


@dataclass(frozen=True)
class ComparedFigures:
    """A claim's two figures, and the intervals of what must be negative, one per condition.

    ``equal`` says that two figures may be equal. ``known`` is false where a figure that varies with
    the targets has no interval: then the intervals are points.
    """

    left: float
    right: float
    excesses: tuple[Interval, ...]
    equal: bool
    known: bool

    @property
    def holds(self) -> bool:
        """Whether the claim holds within the intervals."""
        return all(one.high < 0 or (self.equal and one.high == 0) for one in self.excesses)

    @property
    def fails(self) -> bool:
        """Whether its contrary holds within the intervals."""
        return any(one.low > 0 or (not self.equal and one.low == 0) for one in self.excesses)


@dataclass(frozen=True)
class Claim:
    """``left`` is below (above, about) ``factor`` × ``right``, in words ``says``.

    A reading without an attack is that of ``attack``, or of the judged one. With ``about``, the two
    are within ``factor`` of each other, in both directions; ``times`` multiplies ``right``, if a
    law says how much larger ``left`` is. Figures of targets must hold, or fail, with confidence;
    otherwise the claim is undecided. An attack that reports no success on most targets decides
    nothing where the claim needs it to work.
    """

    left: StudyReading
    relation: str
    right: StudyReading | float
    says: str = ""
    factor: float = 1.0
    times: float = 1.0
    attack: str | None = None
    needs: Needs | None = None
    given: Claim | None = None
    """A claim that must be confirmed first, usually that the attack works at all."""

    def judge(
        self, run: StudyRun, who: str = STRONGEST, *, confidence: float = LEVEL
    ) -> ClaimVerdict:
        """Return the verdict on the claim for an attack, or for the strongest on each setting."""
        who = self._judged(run, who)
        early = self._groundless(run, who, confidence) or self._idle(run, who)
        early = early or self._exact(run, who)
        if early is not None:
            return early
        found = self.compared(run, who, confidence=confidence)
        if found is None:
            return ClaimVerdict(Kind.UNDECIDED, "not part of this run", estimated=False)
        estimated = any(one.half != 0 for one in found.excesses)
        if not found.known:
            figures = f"one figure without an interval: {self._figures(found)}"
            return ClaimVerdict(Kind.UNDECIDED, figures, estimated=False)
        if found.holds:
            return ClaimVerdict(Kind.CONFIRMED, self._figures(found), estimated=estimated)
        if self.needs is not None:
            there = run.read(StudyReading(self.needs.quantity, self.left.setting), "")
            if there is not None and there < self.needs.least:
                return ClaimVerdict(Kind.UNDECIDED, self._too_small(found, there))
        if found.fails:
            return ClaimVerdict(Kind.NOT_CONFIRMED, self._figures(found), estimated=estimated)
        return ClaimVerdict(Kind.UNDECIDED, self._figures(found))

    def _judged(self, run: StudyRun, who: str) -> str:
        """Return whom the claim is judged for: two settings are compared under one attack."""
        if self.attack is not None:
            return self.attack
        if who == STRONGEST and isinstance(self.right, StudyReading):
            settings = {self.left.setting, self.right.setting}
            return run.named(who, *settings) if len(settings) > 1 else who
        return who

    def judged_attack(self, run: StudyRun, who: str = STRONGEST) -> str:
        """Return the name of the attack that ``judge`` is about; "" if it needs none."""
        if self.left.quantity == "strongest":
            strongest = run.strongest(self.left.setting)
            return "" if strongest is None else strongest.attack
        return run.named(self.left.attack or self._judged(run, who), self.left.setting)

    def _exact(self, run: StudyRun, who: str) -> ClaimVerdict | None:
        """Return the verdict on figures of records that came out up to rounding."""
        sides = (self.left, self.right) if isinstance(self.right, StudyReading) else (self.left,)
        rows = [run.row(side, who) for side in sides]
        if len(sides) == 1 and "~" not in self.left.quantity:
            return None
        if not all(row is not None and exact(row) for row in rows):
            return None
        kind = Kind.CONFIRMED if self.relation == "about" else Kind.UNDECIDED
        return ClaimVerdict(kind, "every record is rebuilt up to rounding", estimated=False)

    def compared(
        self, run: StudyRun, who: str, *, confidence: float = LEVEL
    ) -> ComparedFigures | None:
        """Return the two figures under an attack; None if the run has not both."""
        left = run.read(self.left, who)
        right = self.right if isinstance(self.right, float) else run.read(self.right, who)
        if left is None or right is None:
            return None
        conditions = {
            "below": ((1.0, -self.factor),),
            "above": ((-1.0, 1.0 / self.factor),),
            "about": ((1.0, -self.factor), (-self.factor, 1.0)),
        }[self.relation]
        found = [
            self._excess(run, who, (left, right), (a, b * self.times), confidence)
            for a, b in conditions
        ]
        points = tuple(
            one or point(a * left + b * self.times * right)
            for one, (a, b) in zip(found, conditions, strict=True)
        )
        known = None not in found
        return ComparedFigures(left, self.times * right, points, self.relation == "about", known)

    def _excess(
        self,
        run: StudyRun,
        who: str,
        figures: tuple[float, float],
        weights: tuple[float, float],
        confidence: float,
    ) -> Interval | None:
        """Return the interval of ``weights`` · ``figures``: below zero if the claim holds."""
        left = run.sample(self.left, who)
        right = run.sample(self.right, who) if isinstance(self.right, StudyReading) else None
        if left is not None:
            # A figure that is not a statistic of targets has no interval.
            ratio = -weights[1] / weights[0]
            one = difference(left, right or figures[1], ratio, confidence=confidence)
            return one.scaled(weights[0])
        own = run.interval(self.left, who, confidence=confidence)
        if own is None:
            return None
        return own.scaled(weights[0], shift=weights[1] * figures[1])

    def _groundless(self, run: StudyRun, who: str, confidence: float) -> ClaimVerdict | None:
        """Return the verdict where the claim that must hold first does not."""
        if self.given is None:
            return None
        there = self.given.left.setting
        first = self.given.judge(run, who, confidence=confidence)
        if first.kind is Kind.DID_NOT_WORK:
            return first
        if first.kind is not Kind.CONFIRMED:
            reason = f"on “{there}” it is not shown to be {self.given.says}"
            return ClaimVerdict(Kind.UNDECIDED, reason, estimated=False)
        if isinstance(self.right, StudyReading) and run.row(self.right, who) is not None:
            return None
        strongest = run.row(self.given.left, who)
        here = strongest and run.row(StudyReading("success", self.left.setting, strongest.attack))
        if strongest is not None and (here is None or not here.ran):
            # What is not attacked by the strongest attack is not mitigated.
            reason = f"{strongest.attack}, the strongest on “{there}”, did not run here"
            return ClaimVerdict(Kind.UNDECIDED, reason, estimated=False)
        return None

    def _idle(self, run: StudyRun, who: str) -> ClaimVerdict | None:
        """Return the verdict where an attack that must work for the claim did not."""
        for reading in self._working():
            row = run.row(reading, who)
            if row is not None and not worked(row):
                status, count = max(row.statuses.items(), key=lambda one: one[1])
                words = status.lower().replace("_", " ")
                reason = f"{words} on {count} of {row.trials} targets"
                if row.setting != self.left.setting:
                    reason += f" of “{row.setting}”"
                return ClaimVerdict(Kind.DID_NOT_WORK, reason, (row.setting, row.attack))
        return None

    def _working(self) -> tuple[StudyReading, ...]:
        """Return the readings whose attack must work: of the error that the claim calls small."""
        right = () if isinstance(self.right, float) else (self.right,)
        if self.relation == "about":
            return (self.left, *right)
        if self.relation == "below":
            return (self.left,)
        return () if self.given is not None else right or (self.left,)

    def _too_small(self, found: ComparedFigures, there: float) -> str:
        assert self.needs is not None
        what = self.needs.quantity.rpartition(".")[2].replace("_", " ")
        needed = f"{shown(there)} {what}, {shown(self.needs.least)} needed"
        return f"{self._figures(found)}; {needed}"

    def _figures(self, found: ComparedFigures) -> str:
        """Return both figures, the factor between them, and the uncertainty of their difference."""
        sign = "against"
        if found.holds:
            sign = {"below": "<", "above": ">", "about": "≈"}[self.relation]
        elif found.fails:
            sign = {"below": "≥", "above": "≤", "about": "≠"}[self.relation]
        half = found.excesses[0].half
        reach = f"; ± {shown(half)}" if 0 < half < math.inf else ""
        alone = "" if math.isfinite(half) else "; one batch has no interval"
        return f"{shown(found.left)} {sign} {shown(found.right)}{self._times()}{reach}{alone}"

    def _times(self) -> str:
        """Return the factor in words, if it is more than a tolerance for rounding."""
        if abs(self.factor - 1.0) < 1e-6:
            return ""
        if self.relation == "about":
            return f" within a factor {self.factor:g}"
        return f" × {self.factor if self.relation == 'below' else 1.0 / self.factor:.3g}"


@dataclass(frozen=True)
class ClaimRow:
    """One published figure, its reading in a run, and the paper's claim about it.

    The reading is the claim's left side, unless ``shows`` names another. ``check`` says why a row
    is no evidence for the paper, such as a proven inequality: it is tallied apart. ``cell`` places
    it in a matrix, by the words of its line and of its column.
    """

    label: str
    published: float | str
    claim: Claim
    shows: StudyReading | None = None
    check: str = ""
    cell: tuple[str, str] | None = None

    @property
    def measured(self) -> StudyReading:
        """The reading that is compared with the published figure."""
        return self.shows or self.claim.left


def versus(
    label: str,
    published: float | str,
    left: StudyReading,
    relation: str,
    right: StudyReading | float,
    says: str,
    *,
    attack: str = "",
    factor: float = 1.0,
    times: float = 1.0,
    needs: Needs | None = None,
    check: str = "",
    cell: tuple[str, str] | None = None,
) -> ClaimRow:
    """Return a row on a figure of one ``attack``, or of a reading that needs no attack."""
    claim = Claim(
        left, relation, right, says, factor=factor, times=times, attack=attack, needs=needs
    )
    return ClaimRow(label, published, claim, check=check, cell=cell)
