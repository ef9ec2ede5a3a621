"""What a paper says of a figure, and whether a run bears it out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

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
class Claim:
    """``left`` is below (above, about) ``factor`` × ``right``, in words ``says``.

    A reading without an attack is that of the attack under judgement. With ``about``, the two are
    within ``factor`` of each other, either way; ``times`` multiplies ``right``, where a law says
    how much larger ``left`` is. ``attacks`` are judged in turn, the paper's own first: one that
    bears the claim out is enough, unless ``every`` must. Figures that differ by less than
    ``margin`` of each other are too close to call.
    """

    left: Reading
    relation: str
    right: Reading | float
    says: str = ""
    factor: float = 1.0
    times: float = 1.0
    every: bool = False
    margin: float = 0.0
    attacks: tuple[str, ...] = ("reconstructor", "ridge")
    needs: Needs | None = None

    def judge(self, run: Run) -> Verdict:
        """Return the verdict on the claim from a run's figures."""
        tried = [a for a in self.attacks if self._pair(run, a) is not None]
        if not tried:
            return Verdict(Kind.NOT_TESTABLE, "not part of this run")
        held = [attack for attack in tried if self._holds(run, attack)]
        if held and (not self.every or len(held) == len(tried)):
            by = "" if held[0] == tried[0] else held[0]
            note = f"by {by}, not by {tried[0]}: " if by else ""
            return Verdict(Kind.CONFIRMED, note + self._text(run, held[0]), by)
        if self.needs is not None:
            there = run.read(Reading(self.needs.quantity, self.left.setting), "")
            if there is not None and there < self.needs.least:
                return Verdict(Kind.NOT_TESTABLE, self._too_small(run, tried[0], there))
        failed = next(a for a in tried if a not in held)
        close = [a for a in tried if a not in held and self._close(run, a)]
        if len(close) + len(held) == len(tried):
            limit = f"a difference below {self.margin:.0%} is too close to call"
            return Verdict(Kind.NOT_TESTABLE, f"{limit}: {self._text(run, close[0])}")
        by = "" if failed == self.attacks[0] else f"{failed}: "
        return Verdict(Kind.NOT_CONFIRMED, by + self._text(run, failed))

    def _too_small(self, run: Run, attack: str, there: float) -> str:
        assert self.needs is not None
        what = self.needs.quantity.rpartition(".")[2].replace("_", " ")
        return (
            f"{shown(there)} {what}, {shown(self.needs.least)} needed: {self.needs.why}; "
            f"{self._text(run, attack)}"
        )

    def _pair(self, run: Run, attack: str) -> tuple[float, float] | None:
        left = run.read(self.left, attack)
        right = self.right if isinstance(self.right, float) else run.read(self.right, attack)
        return None if left is None or right is None else (left, self.times * right)

    def _holds(self, run: Run, attack: str) -> bool:
        pair = self._pair(run, attack)
        assert pair is not None
        left, right = pair
        if self.relation == "below":
            return left < self.factor * right * (1.0 - self.margin)
        if self.relation == "above":
            return left * (1.0 - self.margin) > right / self.factor
        low, high = sorted(pair)
        return high <= self.factor * low

    def _close(self, run: Run, attack: str) -> bool:
        """Tell whether two figures are within the margin of each other."""
        pair = self._pair(run, attack)
        assert pair is not None
        low, high = sorted(pair)
        return low >= high * (1.0 - self.margin) and self.margin > 0

    def _text(self, run: Run, attack: str) -> str:
        pair = self._pair(run, attack)
        assert pair is not None
        sign, says = {"below": "<", "above": ">", "about": "≈"}[self.relation], self.says
        if self._close(run, attack) and self.relation != "about":
            sign = "≈"
        elif not self._holds(run, attack):
            sign = {"below": "≥", "above": "≤", "about": "≠"}[self.relation]
            says = f"it does not hold that: {says}" if says else ""
        figures = f"{shown(pair[0])} {sign} {shown(pair[1])}{self._times()}"
        return f"{says} ({figures})" if says else figures

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
