"""A paper's claims, judged twice: for the paper's own method, and for the strongest attack here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from exhume.studies.claims import ClaimRow, ClaimVerdict, Kind
from exhume.studies.part import Part
from exhume.studies.reading import STRONGEST, StudyRun

ERROR_RATE = 0.05
"""The share of wrong verdicts among the decided ones of a page's column, at most (expected)."""


@dataclass(frozen=True)
class JudgedRow:
    """A row with its verdict for the paper's own method and for the strongest attack here.

    Each is None where the claim is not about it. ``who`` are the two attacks that were judged.
    """

    row: ClaimRow
    who: tuple[str | None, str | None]
    own: ClaimVerdict | None
    strongest: ClaimVerdict | None

    def describe(self, run: StudyRun) -> str:
        """Return its verdicts in words, for the paper's own method first."""
        lines = [] if self.own is None else [f"{self.own.kind.value}: {self.own.reason}"]
        if self.strongest is not None and self.who[1] is not None:
            name = self.row.claim.judged_attack(run, self.who[1])
            told = f"{self.strongest.kind.value}: {self.strongest.reason}"
            lines.append(f"{name or 'strongest'} {told}")
        return "\n".join(lines)


@dataclass(frozen=True)
class JudgedPart:
    """A part that was run, with its rows."""

    part: Part[Any]
    run: StudyRun
    rows: tuple[JudgedRow, ...]

    def verdicts(self, column: str, *, checks: bool = False) -> list[ClaimVerdict]:
        """Return the verdicts of the column ``own`` or ``strongest``, of claims or of checks."""
        found = (getattr(one, column) for one in self.rows if bool(one.row.check) is checks)
        return [one for one in found if one is not None]


@dataclass(frozen=True)
class JudgedPaper:
    """All parts of a paper, with the confidence of each column's verdicts."""

    parts: tuple[JudgedPart, ...]
    own: float
    strongest: float

    def verdicts(self, column: str, *, checks: bool = False) -> list[ClaimVerdict]:
        """Return the verdicts of a column, of claims or of checks."""
        return [v for part in self.parts for v in part.verdicts(column, checks=checks)]


def judged(part: Part[Any], run: StudyRun, own: float, strongest: float) -> JudgedPart:
    """Return the verdicts of every row whose setting was run, at each column's confidence."""
    there, rows = run.settings(), []
    for row in part.rows(part.size_of(run)):
        if row.measured.setting not in there:
            continue
        who = _who(part, row)
        found = [
            None if one is None else row.claim.judge(run, one, confidence=level)
            for one, level in zip(who, (own, strongest), strict=True)
        ]
        rows.append(JudgedRow(row, who, *found))
    return JudgedPart(part, run, tuple(rows))


def judged_paper(parts: Sequence[Part[Any]], runs: Mapping[str, StudyRun]) -> JudgedPaper:
    """Return the verdicts of all parts that were run, corrected for the number of claims."""
    there = [(part, runs[part.name]) for part in parts if part.name in runs]

    def column(name: str) -> float:
        def verdicts(level: float) -> list[ClaimVerdict]:
            all_parts = (judged(part, run, level, level) for part, run in there)
            return [v for one in all_parts for v in one.verdicts(name)]

        return corrected(verdicts)

    own, strongest = column("own"), column("strongest")
    return JudgedPaper(tuple(judged(*one, own, strongest) for one in there), own, strongest)


def corrected(verdicts: Callable[[float], Sequence[ClaimVerdict]]) -> float:
    """Return the confidence at which claims are judged together (Benjamini and Hochberg 1995).

    ``verdicts`` judges them at a confidence. Of the decided ones a share of ``ERROR_RATE`` is wrong
    at most, in expectation. Only claims on targets count: a computed figure has no chance in it.
    """
    share = ERROR_RATE
    while True:
        kinds = (Kind.DID_NOT_WORK,)
        tested = [v for v in verdicts(1 - share) if v.estimated and v.kind not in kinds]
        decided = sum(v.decided for v in tested)
        smaller = ERROR_RATE * max(decided, 1) / max(len(tested), 1)
        if smaller >= share or not decided:
            return 1 - min(smaller, share)
        share = smaller


def _who(part: Part[Any], row: ClaimRow) -> tuple[str | None, str | None]:
    """Return whom a row is judged for: the paper's own method, and the strongest attack."""
    claim = row.claim
    named = claim.left.attack or claim.attack
    methods = part.methods or part.attacks[:1]
    if claim.left.quantity == "strongest":
        return None, STRONGEST
    if named is None and methods:
        return methods[0], STRONGEST if set(part.attacks) - set(methods) else None
    if not named or named in methods:
        return named or "", None
    return None, named
