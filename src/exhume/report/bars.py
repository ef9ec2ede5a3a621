"""The bracket as bars: three on the first screen, and one compact line per setting on one axis.

Lengths are percentages in SVG attributes, so that the page needs no style attributes.
"""

from __future__ import annotations

from dataclasses import dataclass

from exhume.report.numbers import NOTHING, counted, interval, limit_text, percent, rate_text
from exhume.report.verdict import Finding
from exhume.runlog.setting import CeilingCurve
from exhume.runlog.summary import Bracket, Rate

_UNBOUNDED = CeilingCurve()


@dataclass(frozen=True)
class BarSpan:
    """A stretch of the axis from 0 to 100 %, as SVG lengths."""

    start: str
    end: str
    width: str


@dataclass(frozen=True)
class Bar:
    """One bar: its text, its length (None if unknown), and its interval."""

    kind: str
    label: str
    value: str
    spread: str
    note: str
    length: BarSpan | None
    interval: BarSpan | None


@dataclass(frozen=True)
class Line:
    """One setting's bracket on the common axis."""

    anchor: str
    name: str
    title: str
    finding: str
    reached: str
    blind: str
    ceiling: str
    interval: BarSpan | None
    at: str | None
    blind_at: str | None
    ruled_out: BarSpan | None
    spoken: str


def length(share: float) -> str:
    """Return a share of the axis as an SVG length, inside the axis.

    >>> length(0.97), length(1.2), length(-0.1)
    ('97.00%', '100.00%', '0.00%')
    """
    return f"{100 * min(max(share, 0.0), 1.0):.2f}%"


def span(low: float, high: float) -> BarSpan:
    """Return the stretch from ``low`` to ``high``.

    >>> span(0.25, 0.75)
    BarSpan(start='25.00%', end='75.00%', width='50.00%')
    """
    low, high = min(max(low, 0.0), 1.0), min(max(high, 0.0), 1.0)
    return BarSpan(length(low), length(high), length(high - low))


def three_bars(
    bracket: Bracket, finding: Finding, closeness: float, curve: CeilingCurve = _UNBOUNDED
) -> tuple[Bar, Bar, Bar]:
    """Return the bracket of one setting: what attacks reached, the blind guess, and the ceiling."""
    return _reached(bracket, finding, closeness), _blind(bracket.blind, curve), _ceiling(bracket)


def line(bracket: Bracket, finding: Finding, anchor: str) -> Line:
    """Return a setting's bracket as one line of marks on the common axis."""
    reached, blind, ceiling = bracket.reached, bracket.blind, bracket.ceiling
    said = "nothing judged" if reached is None else rate_text(reached)
    blind_said = NOTHING if blind is None else percent(blind.rate)
    bound_said = limit_text(ceiling)
    informative = ceiling is not None and ceiling < 1.0
    return Line(
        anchor=anchor,
        name=bracket.setting,
        title=bracket.title,
        finding=finding.value,
        reached=said,
        blind=blind_said,
        ceiling=bound_said,
        interval=None if reached is None else span(reached.low, reached.high),
        at=None if reached is None else length(reached.rate),
        blind_at=None if blind is None else length(blind.rate),
        ruled_out=span(ceiling, 1.0) if ceiling is not None and informative else None,
        spoken=f"attacks reached {said}; blind guess {blind_said}; proven limit {bound_said}",
    )


def _reached(bracket: Bracket, finding: Finding, closeness: float) -> Bar:
    reached = bracket.reached
    if reached is None:
        ran = finding is Finding.UNJUDGED
        note = "attacks ran, but the truth is not known" if ran else "no attack really ran"
        return Bar("reached", "attacks reached", "not known", "", note, None, None)
    note = f"of {_of(reached, bracket.targets)}, {_closer(closeness, bracket.candidates)}"
    return Bar(
        "reached",
        "attacks reached",
        percent(reached.rate),
        interval(reached),
        note,
        span(0.0, reached.rate),
        span(reached.low, reached.high),
    )


def _of(reached: Rate, targets: int) -> str:
    if reached.trials == targets:
        return counted(targets, "target")
    return f"the {counted(reached.trials, 'target')} (of {targets:,}) where the attack really ran"


def _closer(closeness: float, candidates: int) -> str:
    if candidates:
        return f"named among {candidates} candidates each"
    if closeness == 1.0:
        return "closer than any record the adversary already had"
    return f"within {closeness:g} × the distance of the nearest record the adversary already had"


def _blind(blind: Rate | None, curve: CeilingCurve) -> Bar:
    if blind is None:
        return Bar("blind", "blind guess", "not known", "", "", None, None)
    note = f"the best constant guess, made without looking at the release{_provable(curve)}"
    return Bar("blind", "blind guess", percent(blind.rate), "", note, span(0, blind.rate), None)


def _provable(curve: CeilingCurve) -> str:
    """Say why the limit starts from more than the guess that was measured."""
    if curve.at is None or not curve.prior_samples:
        return ""
    records = counted(curve.prior_samples, "record")
    return (
        f"; this is measured. A better guess may exist: from {records} it is proven that none "
        f"exceeds {percent(curve.at.kappa)}, and the proven limit starts from there"
    )


def _ceiling(bracket: Bracket) -> Bar:
    label, ceiling, note = "proven limit", bracket.ceiling, bracket.ceiling_note
    if ceiling is None:
        return Bar("unbounded", label, "none", "", note, span(0.0, 1.0), None)
    if ceiling >= 1.0:
        note = "the bound rules nothing out at this closeness"
        return Bar("unbounded", label, "none", "", note, span(0.0, 1.0), None)
    note = f"for every attack; {note}" if note else "for every attack"
    return Bar("ceiling", label, percent(ceiling), "", note, span(0.0, ceiling), None)
