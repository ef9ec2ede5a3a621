"""The answer in words: how bad each setting is, which is the worst, and what the headline says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from exhume.audit.summary import Bracket, Row, Summary
from exhume.report.words import counted, listed, number, percent

_MOST = 0.5
"""From this rate on "a record can be rebuilt"; below it, "in part"."""


class Finding(Enum):
    """What the attacks found of a setting, worst first. The value names it in the page's classes.

    A setting that no attack really ran on comes before one where attacks ran and failed: nothing
    is known of it.
    """

    REBUILT = "rebuilt"
    PARTLY = "partly"
    UNJUDGED = "unjudged"
    UNANSWERED = "unanswered"
    NOT_REBUILT = "not-rebuilt"


@dataclass(frozen=True)
class Verdict:
    """The first lines of the report."""

    finding: Finding
    headline: str
    explanation: str


def finding_of(bracket: Bracket, rows: Sequence[Row]) -> Finding:
    """Judge one setting. ``rows`` are its own.

    Success counts as rebuilding only where the lower end of its interval is above what the blind
    guess reached on the same targets.
    """
    if bracket.reached is None:
        ran = any(row.ran for row in rows if not row.baseline)
        return Finding.UNJUDGED if ran else Finding.UNANSWERED
    blind = 0.0 if bracket.blind is None else bracket.blind.rate
    if bracket.reached.low <= blind:
        return Finding.NOT_REBUILT
    return Finding.REBUILT if bracket.reached.rate >= _MOST else Finding.PARTLY


def worst_first(summary: Summary) -> tuple[Bracket, ...]:
    """Return the brackets with the worst one in front, the others in the order of the plan."""
    if not summary.brackets:
        return ()
    order = list(Finding)

    def badness(bracket: Bracket) -> tuple[int, float, float]:
        finding = finding_of(bracket, rows_of(summary, bracket.setting))
        reached = 0.0 if bracket.reached is None else bracket.reached.rate
        return (
            order.index(finding),
            -reached,
            -(1.0 if bracket.ceiling is None else bracket.ceiling),
        )

    worst = min(summary.brackets, key=badness)
    return (worst, *(b for b in summary.brackets if b is not worst))


def rows_of(summary: Summary, setting: str) -> tuple[Row, ...]:
    """Return the rows of one setting."""
    return tuple(row for row in summary.rows if row.setting == setting)


def verdict(summary: Summary) -> Verdict:
    """Return the report's first words, from the worst setting."""
    if not summary.brackets:
        return Verdict(
            Finding.UNANSWERED,
            "Nothing can be said: no setting has been measured.",
            "The run folder holds no results yet.",
        )
    worst = worst_first(summary)[0]
    finding = finding_of(worst, rows_of(summary, worst.setting))
    return Verdict(finding, _headline(finding, worst), _explanation(finding, worst, summary))


def _headline(finding: Finding, bracket: Bracket) -> str:
    match finding:
        case Finding.REBUILT:
            return "A training record can be rebuilt from this release."
        case Finding.PARTLY:
            assert bracket.reached is not None
            found, of = bracket.reached.successes, bracket.reached.trials
            return f"Training records could be rebuilt in part: {found} of {of}."
        case Finding.UNJUDGED:
            return "An attack returned a record; without the truth it can't be judged."
        case Finding.UNANSWERED:
            return "Nothing can be said: no attack really ran."
    return f"No attack that ran rebuilt a record{_unless_blind(bracket)}: {_what_remains(bracket)}."


def _unless_blind(bracket: Bracket) -> str:
    hit = bracket.reached is not None and bracket.reached.successes
    return " more often than a blind guess" if hit else ""


def _what_remains(bracket: Bracket) -> str:
    if bracket.ceiling is not None and bracket.ceiling < 1.0:
        return f"above {percent(bracket.ceiling)} is ruled out for every attack"
    return "a stronger one still might"


def contradicts(bracket: Bracket) -> bool:
    """Whether attacks reached more than the bound allows, beyond chance: one of them is wrong."""
    if bracket.reached is None or bracket.ceiling is None:
        return False
    return bracket.reached.low > bracket.ceiling


def _explanation(finding: Finding, bracket: Bracket, summary: Summary) -> str:
    parts = _contradictions(summary)
    if finding is Finding.UNANSWERED:
        parts.append("Attacks that were refused, stopped or crashed are no evidence of safety.")
    if finding is Finding.UNJUDGED:
        parts += _own_estimate(rows_of(summary, bracket.setting))
    if finding is not Finding.UNANSWERED and bracket.unanswered:
        targets = counted(bracket.unanswered, "target")
        parts.append(f"On {targets} no attack really ran: nothing is known about those.")
    others = [b for b in summary.brackets if b is not bracket]
    silent = [b for b in others if b.reached is None]
    if silent:
        which = counted(len(silent), "other setting")
        parts.append(f"In {which} nothing was judged, which is no evidence of safety.")
    return " ".join(parts)


def _contradictions(summary: Summary) -> list[str]:
    names = [bracket.setting for bracket in summary.brackets if contradicts(bracket)]
    if not names:
        return []
    return [
        f"In {listed(names)} attacks reached more than the bound allows: the training does not "
        "keep the privacy it is said to, or this audit is wrong. Do not rely on the bound."
    ]


def _own_estimate(rows: Sequence[Row]) -> list[str]:
    spreads = [
        (row.attack, row.error_estimate)
        for row in rows
        if row.ran and not row.baseline and row.error_estimate is not None
    ]
    return [
        f"{attack} itself estimates its error at {number(spread.median)}, in the record's units."
        for attack, spread in spreads[:1]
    ]
