"""What a paper says of a figure, and whether a run bears it out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from exhume.studies.intervals import Interval, difference
from exhume.studies.run import Reading, Run, shown


class Kind(Enum):
    """How a row ends."""

    CONFIRMED = "confirmed"
    NOT_CONFIRMED = "not confirmed"
    NOT_TESTABLE = "not testable at this size"


@dataclass(frozen=True)
class Verdict:
    """How a row ends, and why; ``by`` names the attack that bore it out, where not the paper's."""

    kind: Kind
    reason: str
    by: str = ""

    def describe(self) -> str:
        """Return it as a table's cell."""
        return f"**{self.kind.value}**: {self.reason}" if self.reason else f"**{self.kind.value}**"


@dataclass(frozen=True)
class Needs:
    """A size below which a claim that fails says nothing: ``quantity`` at least ``least``."""

    quantity: str
    least: float
    why: str


@dataclass(frozen=True)
class _Judged:
    """A claim's two figures under one attack, and where what must be negative lies.

    ``excesses`` hold an interval a condition, over the targets; where a figure is not a statistic
    of targets, the interval is a point. Two that are to be about equal may be ``equal``.
    """

    left: float
    right: float
    excesses: tuple[Interval, ...]
    equal: bool

    @property
    def holds(self) -> bool:
        return all(one.high < 0 or (self.equal and one.high == 0) for one in self.excesses)

    @property
    def fails(self) -> bool:
        return any(one.low > 0 or (not self.equal and one.low == 0) for one in self.excesses)


@dataclass(frozen=True)
class Claim:
    """``left`` is below (above, about) ``factor`` × ``right``, in words ``says``.

    A reading without an attack is that of the attack under judgement. With ``about``, the two are
    within ``factor`` of each other, either way; ``times`` multiplies ``right``, where a law says
    how much larger ``left`` is. ``attacks`` are judged in turn, the paper's own first: one that
    bears the claim out is enough, unless ``every`` must. Where figures are statistics of targets,
    the claim must hold, or fail, with 95 % confidence: else it can't be told.
    """

    left: Reading
    relation: str
    right: Reading | float
    says: str = ""
    factor: float = 1.0
    times: float = 1.0
    every: bool = False
    attacks: tuple[str, ...] = ("reconstructor", "ridge")
    needs: Needs | None = None
    given: Claim | None = None
    """What must be confirmed first, or this claim says nothing: that the attack works at all."""

    def judge(self, run: Run) -> Verdict:
        """Return the verdict on the claim from a run's figures."""
        if self.given is not None and self.given.judge(run).kind is not Kind.CONFIRMED:
            first = self.given.left.setting
            reason = f"the attacks fail on “{first}” already: that they fail here says nothing"
            return Verdict(Kind.NOT_TESTABLE, reason)
        found = {a: one for a in self.attacks if (one := self._judged(run, a)) is not None}
        if not found:
            return Verdict(Kind.NOT_TESTABLE, "not part of this run")
        first = next(iter(found))
        held = [attack for attack, one in found.items() if one.holds]
        if held and (not self.every or len(held) == len(found)):
            by = "" if held[0] == first else held[0]
            note = f"by {by}, not by {first}: " if by else ""
            return Verdict(Kind.CONFIRMED, note + self._text(found[held[0]]), by)
        if self.needs is not None:
            there = run.read(Reading(self.needs.quantity, self.left.setting), "")
            if there is not None and there < self.needs.least:
                return Verdict(Kind.NOT_TESTABLE, self._too_small(found[first], there))
        failed = [attack for attack, one in found.items() if one.fails]
        open_still = [attack for attack in found if attack not in (*held, *failed)]
        if open_still and not (self.every and failed):
            return Verdict(Kind.NOT_TESTABLE, self._open(found[open_still[0]]))
        by = "" if failed[0] == self.attacks[0] else f"{failed[0]}: "
        return Verdict(Kind.NOT_CONFIRMED, by + self._text(found[failed[0]]))

    def leans(self, run: Run) -> bool:
        """Tell whether the figures themselves are as claimed, however sure that is."""
        if self.given is not None and not self.given.leans(run):
            return False
        found = [one for a in self.attacks if (one := self._judged(run, a, sure=False)) is not None]
        return bool(found) and (all if self.every else any)(one.holds for one in found)

    def _judged(self, run: Run, attack: str, *, sure: bool = True) -> _Judged | None:
        left = run.read(self.left, attack)
        right = self.right if isinstance(self.right, float) else run.read(self.right, attack)
        if left is None or right is None:
            return None
        conditions = {
            "below": ((1.0, -self.factor),),
            "above": ((-1.0, 1.0 / self.factor),),
            "about": ((1.0, -self.factor), (-self.factor, 1.0)),
        }[self.relation]
        excesses = tuple(
            self._excess(run, attack, (left, right), (a, b * self.times), sure=sure)
            for a, b in conditions
        )
        return _Judged(left, self.times * right, excesses, self.relation == "about")

    def _excess(
        self,
        run: Run,
        attack: str,
        figures: tuple[float, float],
        weights: tuple[float, float],
        *,
        sure: bool,
    ) -> Interval:
        """Return where ``weights`` · ``figures`` lies, which the claim has below zero."""
        point = weights[0] * figures[0] + weights[1] * figures[1]
        there = Interval(point, point)
        if not sure:
            return there
        left = run.sample(self.left, attack)
        if left is None:
            return self._of_interval(run, attack, weights) or there
        right = run.sample(self.right, attack) if isinstance(self.right, Reading) else None
        # A figure that is no statistic of targets is taken as it is.
        one = difference(left, right or figures[1], -weights[1] / weights[0])
        ends = sorted((weights[0] * one.low, weights[0] * one.high))
        return Interval(*ends)

    def _of_interval(self, run: Run, attack: str, weights: tuple[float, float]) -> Interval | None:
        """Return the same where the left side has an interval of its own, and the right none."""
        one = run.interval(self.left, attack)
        if one is None or not isinstance(self.right, float):
            return None
        shift = weights[1] * self.right
        low, high = sorted((weights[0] * one.low + shift, weights[0] * one.high + shift))
        return Interval(low, high)

    def _too_small(self, judged: _Judged, there: float) -> str:
        assert self.needs is not None
        what = self.needs.quantity.rpartition(".")[2].replace("_", " ")
        return (
            f"{shown(there)} {what}, {shown(self.needs.least)} needed: {self.needs.why}; "
            f"{self._text(judged)}"
        )

    def _open(self, judged: _Judged) -> str:
        says = f"{self.says} " if self.says else ""
        if judged.excesses[0].low == -float("inf"):
            return f"one batch tells nothing of others: {says}({self._figures(judged, 'against')})"
        return f"too close to call: {says}({self._figures(judged, 'against')})"

    def _text(self, judged: _Judged) -> str:
        sign, says = {"below": "<", "above": ">", "about": "≈"}[self.relation], self.says
        if judged.fails:
            sign = {"below": "≥", "above": "≤", "about": "≠"}[self.relation]
            says = f"it does not hold that: {says}" if says else ""
        elif not judged.holds:
            sign = "against"
        figures = self._figures(judged, sign)
        return f"{says} ({figures})" if says else figures

    def _figures(self, judged: _Judged, sign: str) -> str:
        """Return both figures, the factor between them, and how far their difference may be off."""
        half = judged.excesses[0].half
        known = 0 < half < float("inf")
        reach = f"; ± {shown(half)}" if known else ""
        return f"{shown(judged.left)} {sign} {shown(judged.right)}{self._times()}{reach}"

    def _times(self) -> str:
        """Return the factor in words, where it is more than room for rounding."""
        if abs(self.factor - 1.0) < 1e-6:
            return ""
        if self.relation == "about":
            return f" within a factor {self.factor:g}"
        return f" × {self.factor if self.relation == 'below' else 1.0 / self.factor:.3g}"


@dataclass(frozen=True)
class Row:
    """One published figure, the reading that stands beside it, and what the paper says of it."""

    label: str
    published: float | str
    measured: Reading
    claim: Claim


def judged(rows: Sequence[Row], run: Run) -> list[tuple[Row, Verdict]]:
    """Return the verdict of every row whose setting was run."""
    there = run.settings()
    return [(row, row.claim.judge(run)) for row in rows if row.measured.setting in there]


def leaning(rows: Sequence[Row], run: Run) -> dict[str, bool]:
    """Return for every row whose setting was run whether its figures are as the paper says."""
    there = run.settings()
    return {row.label: row.claim.leans(run) for row in rows if row.measured.setting in there}
