"""A number with its confidence interval."""

from __future__ import annotations

import math
from dataclasses import dataclass

from exhume.protocol.errors import InputError

LEVEL = 0.95
"""The confidence of every interval that does not state another."""


@dataclass(frozen=True)
class Interval:
    """An estimate and the interval [low, high] around it; infinite ends if nothing is known."""

    estimate: float
    low: float = -math.inf
    high: float = math.inf
    confidence: float = LEVEL

    @property
    def half(self) -> float:
        """Half of the width."""
        return (self.high - self.low) / 2

    def scaled(self, factor: float, *, shift: float = 0.0) -> Interval:
        """Return the interval of ``factor`` times the number plus ``shift``."""
        low, high = sorted((factor * self.low + shift, factor * self.high + shift))
        return Interval(factor * self.estimate + shift, low, high, self.confidence)

    def at(self, confidence: float) -> Interval:
        """Return about the same interval at another confidence, each side like a normal error's.

        >>> found = Interval(0.5, 0.4, 0.6).at(0.99)
        >>> round(found.low, 3), round(found.high, 3)
        (0.369, 0.631)
        """
        from statistics import NormalDist

        normal = NormalDist().inv_cdf
        times = normal((1 + confidence) / 2) / normal((1 + self.confidence) / 2)
        low, high = (self.estimate + times * (end - self.estimate) for end in (self.low, self.high))
        return Interval(self.estimate, low, high, confidence)


def point(value: float) -> Interval:
    """Return the interval of a number that is known exactly."""
    return Interval(value, value, value)


def require_level(confidence: float) -> None:
    """Raise unless ``confidence`` lies strictly between 0 and 1."""
    if not 0 < confidence < 1:
        raise InputError(f"confidence must lie strictly between 0 and 1, got {confidence}")
