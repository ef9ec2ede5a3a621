"""How often a judge's scores are wrong, and what may be said of a candidate by them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from exhume.arrays import FloatArray
from exhume.authenticity.grouped import Grouped, area, each_its_own
from exhume.errors import InputError
from exhume.metrics.confidence import Interval

_ONE_SIDED = 0.9
"""A two-sided interval of this confidence has 95 % on either side."""


class Verdict(Enum):
    """What is said of a candidate. The value is what the report says."""

    REAL = "real"
    INVENTED = "invented"
    UNTOLD = "cannot be told"


@dataclass(frozen=True, eq=False)
class Calibration:
    """How well scores tell real from invented, over pictures rather than candidates.

    ``threshold`` is the lowest score with a false-positive rate of at most ``allowed`` (95 %
    confidence): from there on "real" may be said. Below ``floor`` at most that share of the real
    ones lies: "invented" may be said. None where there is none; between them nothing can be told.
    """

    real: Grouped
    other: Grouped
    area: Interval
    allowed: float
    threshold: float | None
    floor: float | None

    @property
    def tells(self) -> bool:
        """Whether anything can be told: the area's interval lies above ½ and a threshold holds."""
        return self.area.low > 0.5 and self.threshold is not None and self.recognised > 0

    @property
    def recognised(self) -> int:
        """How many real pictures have a candidate at the threshold or above."""
        return 0 if self.threshold is None else self.real.reaching(self.threshold)

    @property
    def alarms(self) -> Interval:
        """The false-positive rate at the threshold, its high end alone with 95 % confidence."""
        level = np.inf if self.threshold is None else self.threshold
        return self.other.share(level, confidence=_ONE_SIDED)

    def false_positives(self, score: float) -> Interval:
        """Return the rate at which a picture's inventions score as high as ``score``."""
        return self.other.share(score)

    def verdict(self, score: float) -> Verdict:
        """Return what may be said of a candidate with this score."""
        if not self.tells or self.threshold is None:
            return Verdict.UNTOLD
        if score >= self.threshold:
            return Verdict.REAL
        floor = -np.inf if self.floor is None else self.floor
        return Verdict.INVENTED if score < floor else Verdict.UNTOLD

    def curve(self) -> tuple[FloatArray, FloatArray]:
        """Return the ROC's points, from the highest threshold down: false and true rates."""
        levels = np.unique(np.concatenate([self.real.scores, self.other.scores]))[::-1]
        rates = [_passing(side, levels) for side in (self.other, self.real)]
        return rates[0], rates[1]

    def describe(self) -> str:
        """Say it in a sentence."""
        sure = f"AUC {self.area.estimate:.2f} [{self.area.low:.2f}, {self.area.high:.2f}]"
        if not self.tells:
            why = "" if self.area.low > 0.5 else ", whose interval holds chance"
            if self.threshold is None or not self.recognised:
                why += f"; no threshold finds any at a false-positive rate below {self.allowed:g}"
            return f"cannot be told: {sure}{why}"
        return (
            f"{sure}; at a false-positive rate of {self.alarms.estimate:.3f} (at most "
            f"{self.alarms.high:.3f}, with 95 % confidence) {self.recognised} of "
            f"{self.real.pictures} real ones are recognised"
        )


def calibrate(
    real: Grouped | FloatArray, other: Grouped | FloatArray, *, allowed: float = 0.1
) -> Calibration:
    """Measure scores of ``real`` and ``other`` things, none of which was learned from.

    Plain arrays stand for independent scores. Candidates are not: say which picture of which
    network each stands for with ``Grouped``, or the intervals are too narrow.

    >>> calibrate(np.linspace(0.6, 1, 80), np.linspace(0, 0.5, 80)).tells
    True
    >>> calibrate(np.linspace(0, 1, 80), np.linspace(0, 1, 80)).describe()[:15]
    'cannot be told:'
    """
    if not 0 < allowed < 1:
        raise InputError(f"allowed must lie strictly between 0 and 1, got {allowed}")
    real, other = (
        side if isinstance(side, Grouped) else each_its_own(side) for side in (real, other)
    )
    levels = np.unique(np.concatenate([real.scores, other.scores]))
    threshold = _lowest(other, levels, allowed)
    floor = _highest(real, levels, allowed)
    if floor is not None and threshold is not None:
        floor = min(floor, threshold)
    return Calibration(real, other, area(real, other), allowed, threshold, floor)


def _lowest(other: Grouped, levels: FloatArray, allowed: float) -> float | None:
    """The lowest level that few enough inventions reach, going down until one is too low.

    Going in order, and stopping at the first that fails, keeps the confidence of a single one.
    """
    found = None
    for level in levels[::-1]:
        if other.share(level, confidence=_ONE_SIDED).high > allowed:
            break
        found = float(level)
    return found


def _highest(real: Grouped, levels: FloatArray, allowed: float) -> float | None:
    """The highest level that few enough real ones stay below."""
    found = None
    for level in levels:
        if real.share(level, below=True, confidence=_ONE_SIDED).high > allowed:
            break
        found = float(level)
    return found


def _passing(side: Grouped, levels: FloatArray) -> FloatArray:
    """The share of pictures' votes at each level or above."""
    weights = side.weights
    total = max(1.0, float(weights.sum()))
    return np.array([weights[side.scores >= level].sum() for level in levels]) / total
