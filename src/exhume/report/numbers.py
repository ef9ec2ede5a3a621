"""Values of a table as digits, with those that differ from the target marked.

Numbers as text: rates in per cent, errors with two digits, lists in words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from exhume.runlog.summary import Rate
from exhume.runlog.table_columns import TableColumn

_SIGNIFICANT = 6


@dataclass(frozen=True)
class Digits:
    """A value as written: the part that agrees with the target, and the part that does not."""

    same: str
    differing: str


def cell_digits(column: TableColumn, cell: object, target: object) -> Digits:
    """Write a cell as its column is written, and split it where it parts from the target's.

    >>> cell_digits(TableColumn("bmi", "continuous", step=0.1), 29.93, 29.9)
    Digits(same='29.9', differing='')
    >>> cell_digits(TableColumn("sex", "categorical", ("f", "m")), "m", "f")
    Digits(same='', differing='m')
    """
    if isinstance(cell, float) and isinstance(target, float):
        value, true = float(cell), float(target)
        if not column.step and math.isfinite(value) and math.isfinite(true):
            return digits(value, true)
        reference = _stepped(true, column.step)
        # Of two numbers on either side of a tie, one is rounded upwards.
        same = value == true or abs(value - true) <= column.step / 2
        return Digits(reference, "") if same else _parted(_stepped(value, column.step), reference)
    text, reference = _level_text(cell), _level_text(target)
    return Digits(text, "") if text == reference else Digits("", text)


def _stepped(value: float, step: float) -> str:
    if not math.isfinite(value):
        return "missing" if math.isnan(value) else str(value)
    decimals = max(0, -math.floor(math.log10(step))) if step else _SIGNIFICANT
    text = f"{value:,.{decimals}f}"
    return text.removeprefix("-") if not text.strip("-0.,") else text


def _level_text(cell: object) -> str:
    if cell is None or (isinstance(cell, np.datetime64) and np.isnat(cell)):
        return "missing"
    return str(cell.astype("datetime64[D]")) if isinstance(cell, np.datetime64) else str(cell)


def _parted(text: str, reference: str) -> Digits:
    if len(text) != len(reference):
        return Digits("", text)
    parted = (i for i, (a, b) in enumerate(zip(text, reference, strict=True)) if a != b)
    agreeing = next(parted, len(text))
    return Digits(text[:agreeing], text[agreeing:])


def digits(value: float, target: float) -> Digits:
    """Write ``value`` as the target is written, and split it where they part.

    >>> digits(17.9931, 17.99)
    Digits(same='17.99', differing='31')
    >>> digits(17.99 + 1e-9, 17.99)
    Digits(same='17.9900', differing='')
    >>> digits(3.2, 17.99)
    Digits(same='', differing='3.2000')
    """
    return _parted(written(value, target), written(target, target))


def written(value: float, target: float) -> str:
    """Write ``value`` to the place where ``target`` has six significant digits."""
    if not math.isfinite(value):
        return str(value)
    if target and not 1e-4 <= abs(target) < 1e7:
        return f"{value:.{_SIGNIFICANT - 1}e}"
    decimals = _SIGNIFICANT - 1 - (math.floor(math.log10(abs(target))) if target else 0)
    text = f"{value:.{max(decimals, 0)}f}"
    return text.removeprefix("-") if float(text) == 0 else text


NOTHING = "–"
_SPACE = "\u00a0"


def percent(share: float) -> str:
    """Return a share as per cent, never rounded to 0 % or 100 % unless it is exactly that.

    >>> [percent(share).replace(_SPACE, " ") for share in (0, 0.0001, 0.004, 0.974, 0.9951, 1)]
    ['0 %', '< 0.1 %', '0.4 %', '97 %', '99.5 %', '100 %']
    """
    return f"{_number_of_per_cent(share)}{_SPACE}%"


def interval(rate: Rate) -> str:
    """Return a rate's confidence interval; ends that would round to 0 or 100 % are those.

    >>> interval(Rate(50, 50, 1.0, 0.929, 0.9995, 0.95)).replace(_SPACE, " ")
    '[93–100 %]'
    >>> interval(Rate(97, 100, 0.97, 0.9148, 0.9938, 0.95)).replace(_SPACE, " ")
    '[91–99.4 %]'
    """
    low = "0" if rate.low < 0.001 else _number_of_per_cent(rate.low)
    high = "100" if rate.high > 0.999 else _number_of_per_cent(rate.high)
    return f"[{low}–{high}{_SPACE}%]"


def limit_text(ceiling: float | None) -> str:
    """Return the limit for every attack; where it rules nothing out, there is none.

    >>> limit_text(None), limit_text(1.0), limit_text(0.4).replace(_SPACE, " ")
    ('none', 'none', '40 %')
    """
    return "none" if ceiling is None or ceiling >= 1.0 else percent(ceiling)


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


def utility_text(name: str, value: float | None, chance: float | None = None) -> str:
    """Return how good a model is: accuracy in per cent beside chance, anything else as a number.

    >>> utility_text("R²", 0.5197), utility_text("", None)
    ('R² 0.52', '–')
    >>> utility_text("accuracy", 0.8533, 0.5).replace(_SPACE, " ")
    'accuracy 85 % (chance 50 %)'
    """
    if value is None:
        return NOTHING
    if name != "accuracy":
        return f"{name} {value:.2f}"
    beside = "" if chance is None else f" (chance {percent(chance)})"
    return f"{name} {percent(value)}{beside}"


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
