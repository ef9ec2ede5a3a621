"""Values of a table as digits, with those that differ from the target's set apart."""

from __future__ import annotations

import math
from dataclasses import dataclass

_SIGNIFICANT = 6


@dataclass(frozen=True)
class Digits:
    """A value as written: the part that agrees with the target, and the part that does not."""

    same: str
    differing: str


def digits(value: float, target: float) -> Digits:
    """Write ``value`` as the target is written, and split it where they part.

    >>> digits(17.9931, 17.99)
    Digits(same='17.99', differing='31')
    >>> digits(17.99 + 1e-9, 17.99)
    Digits(same='17.9900', differing='')
    >>> digits(3.2, 17.99)
    Digits(same='', differing='3.2000')
    """
    text, reference = written(value, target), written(target, target)
    if len(text) != len(reference):
        return Digits("", text)
    parted = (i for i, (a, b) in enumerate(zip(text, reference, strict=True)) if a != b)
    agreeing = next(parted, len(text))
    return Digits(text[:agreeing], text[agreeing:])


def written(value: float, target: float) -> str:
    """Write ``value`` to the place where ``target`` has six significant digits."""
    if not math.isfinite(value):
        return str(value)
    if target and not 1e-4 <= abs(target) < 1e7:
        return f"{value:.{_SIGNIFICANT - 1}e}"
    decimals = _SIGNIFICANT - 1 - (math.floor(math.log10(abs(target))) if target else 0)
    text = f"{value:.{max(decimals, 0)}f}"
    return text.removeprefix("-") if float(text) == 0 else text
