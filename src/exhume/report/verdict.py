"""The result in words: the finding of each setting, the worst setting, and the headline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from exhume.report.numbers import counted, listed, number, percent
from exhume.runlog.summary import Bracket, Row, Summary

_MOST = 0.5
"""From this rate on "a record can be rebuilt"; below it, "in part"."""


class Finding(Enum):
    """What the attacks found in a setting, worst first. The value is its class in the page.

    A setting that no attack really ran on comes before one where attacks ran and failed: nothing
    is known of it.
    """

    REBUILT = "rebuilt"
    PARTLY = "partly"
    UNJUDGED = "unjudged"
    UNANSWERED = "unanswered"
    NOT_REBUILT = "not-rebuilt"


@dataclass(frozen=True)
class Headline:
    """The first lines of the report."""

    finding: Finding
    headline: str
    explanation: str


def finding_of(bracket: Bracket, rows: Sequence[Row]) -> Finding:
    """Judge one setting. ``rows`` are its own.

    Success counts as rebuilding only if the lower end of its interval is above the blind guess's
    rate on the same targets.
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
        finding = _found(bracket, summary)
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


def verdict(summary: Summary) -> Headline:
    """Return the report's first words, from the worst setting."""
    if not summary.brackets:
        return Headline(
            Finding.UNANSWERED,
            "No result: no setting has been measured.",
            "The run folder contains no results yet.",
        )
    worst = worst_first(summary)[0]
    finding = _found(worst, summary)
    alike = [b for b in worst_first(summary) if _found(b, summary) is finding]
    several = len(summary.brackets) > 1
    words = (
        _several(finding, alike, len(summary.brackets)) if several else _headline(finding, worst)
    )
    return Headline(finding, words, _explanation(finding, worst, summary))


def _headline(finding: Finding, bracket: Bracket) -> str:
    match finding:
        case Finding.REBUILT if bracket.candidates:
            return f"This release reveals which of {bracket.candidates} candidates was trained on."
        case Finding.REBUILT:
            return "A training record can be rebuilt from this release."
        case Finding.PARTLY:
            assert bracket.reached is not None
            found, of = bracket.reached.successes, bracket.reached.trials
            return f"Training records could be rebuilt in part: {found} of {of}."
        case Finding.UNJUDGED:
            return "Not judged: attacks ran, but the true record is not known."
        case Finding.UNANSWERED:
            return "No result: no attack really ran."
    return f"No attack that ran rebuilt a record{_unless_blind(bracket)}: {_what_remains(bracket)}."


def _several(finding: Finding, alike: Sequence[Bracket], settings: int) -> str:
    """Say of how many settings the worst finding holds: a run is more than one release."""
    share = f"{len(alike)} of {settings} settings"
    match finding:
        case Finding.REBUILT if all(bracket.candidates for bracket in alike):
            return f"{share}: most targets named among their candidates."
        case Finding.REBUILT:
            return f"{share}: most targets rebuilt."
        case Finding.PARTLY:
            return f"{share}: some targets rebuilt."
        case Finding.UNJUDGED:
            return f"{share}: not judged, the true records are not known."
        case Finding.UNANSWERED:
            return f"{share}: no result, no attack really ran."
    above_zero = "".join(dict.fromkeys(map(_unless_blind, alike)))
    return (
        f"No attack that ran rebuilt a record{above_zero} in any of {settings} settings: "
        f"{_what_remains(alike[0])}."
    )


def _found(bracket: Bracket, summary: Summary) -> Finding:
    return finding_of(bracket, rows_of(summary, bracket.setting))


def _unless_blind(bracket: Bracket) -> str:
    hit = bracket.reached is not None and bracket.reached.successes
    return " more often than a blind guess" if hit else ""


def _what_remains(bracket: Bracket) -> str:
    if bracket.ceiling is not None and bracket.ceiling < 1.0:
        return f"more than {percent(bracket.ceiling)} is ruled out for every attack"
    return "a stronger attack still might"


def contradicts(bracket: Bracket) -> bool:
    """Whether attacks reached significantly more than the bound allows: then something is wrong."""
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
        "provide the privacy that it claims, or this audit is wrong. Do not rely on the bound."
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
