"""Numbers as a reader meets them: rates in per cent, errors with two digits, lists in words."""

from __future__ import annotations

from collections.abc import Sequence

from exhume.audit.summary import Rate

NOTHING = "–"
_SPACE = "\u00a0"


def percent(share: float) -> str:
    """Return a share as per cent, never rounding something to nothing or most to all.

    >>> [percent(share).replace(_SPACE, " ") for share in (0, 0.0001, 0.004, 0.974, 0.9951, 1)]
    ['0 %', '< 0.1 %', '0.4 %', '97 %', '99.5 %', '100 %']
    """
    return f"{_number_of_per_cent(share)}{_SPACE}%"


def interval(rate: Rate) -> str:
    """Return a rate's confidence interval.

    >>> interval(Rate(97, 100, 0.97, 0.9148, 0.9938, 0.95)).replace(_SPACE, " ")
    '[91–99.4 %]'
    """
    low, high = _number_of_per_cent(rate.low), _number_of_per_cent(rate.high)
    return f"[{low}–{high}{_SPACE}%]"


def rate_text(rate: Rate | None) -> str:
    """Return a rate with its interval, or a dash where there is none."""
    return NOTHING if rate is None else f"{percent(rate.rate)} {interval(rate)}"


def number(value: float | None) -> str:
    """Return a number with two significant digits, or a dash.

    >>> number(3.14159e-14), number(0.1703), number(None), number(1234.4)
    ('3.1e-14', '0.17', '–', '1,234')
    """
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if 100 <= abs(value) < 1e6 else f"{value:.2g}"


def short(value: float) -> str:
    """Return an error in at most seven characters, three digits of it where they fit.

    >>> short(0.17314), short(12.345), short(0.0), short(3.14159e-14), short(0.0004)
    ('0.173', '12.3', '0', '3.1e-14', '4.0e-04')
    """
    if value == 0 or abs(value) >= 1:
        return f"{value:.3g}"
    return f"{value:.3f}" if abs(value) >= 0.01 else f"{value:.1e}"


def duration(seconds: float) -> str:
    """Return a time in the unit that suits it.

    >>> duration(0.003), duration(3.64), duration(404.8)
    ('< 0.1 s', '3.6 s', '6.7 min')
    """
    if seconds < 0.1:
        return "< 0.1 s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def utility_text(name: str, value: float | None) -> str:
    """Return how good a model is: accuracy in per cent, anything else as a number.

    >>> utility_text("R²", 0.5197), utility_text("", None)
    ('R² 0.52', '–')
    """
    if value is None:
        return NOTHING
    return f"{name} {percent(value)}" if name == "accuracy" else f"{name} {value:.2f}"


def counted(count: int, noun: str) -> str:
    """Return a count with its noun.

    >>> counted(1, "target"), counted(1200, "target")
    ('1 target', '1,200 targets')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def listed(parts: Sequence[str]) -> str:
    """Join parts as a sentence would.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _number_of_per_cent(share: float) -> str:
    value = 100 * share
    if value <= 0 or value >= 100:
        return f"{value:.0f}"
    if value < 0.1:
        return "< 0.1"
    if value > 99.9:
        return "> 99.9"
    return f"{value:.1f}" if value < 1 or value > 99 else f"{value:.0f}"
