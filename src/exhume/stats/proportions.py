"""Success rates with exact confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from exhume.protocol.errors import InputError
from exhume.stats.interval import LEVEL, Interval, require_level
from exhume.stats.means import student_quantile


@dataclass(frozen=True)
class Proportion:
    """``successes`` of ``trials``, and the interval [low, high] for the true rate."""

    successes: int
    trials: int
    low: float
    high: float
    confidence: float

    @property
    def rate(self) -> float:
        """The share of successes; NaN without trials."""
        return self.successes / self.trials if self.trials else float("nan")

    @property
    def interval(self) -> Interval:
        """The rate with its interval."""
        return Interval(self.rate, self.low, self.high, self.confidence)


def clopper_pearson(successes: int, trials: int, *, confidence: float = LEVEL) -> Proportion:
    """Return the exact two-sided interval of a success rate (Clopper and Pearson 1934).

    It contains the true rate with at least the stated probability, for any rate and any number of
    trials. Each end errs with at most half of the remaining probability. Without trials the
    interval is [0, 1].

    >>> proportion = clopper_pearson(97, 100)
    >>> round(proportion.low, 3), round(proportion.high, 3)
    (0.915, 0.994)
    """
    require_level(confidence)
    each_side = (1 + confidence) / 2
    low = clopper_pearson_low(successes, trials, confidence=each_side)
    high = clopper_pearson_high(successes, trials, confidence=each_side)
    return Proportion(int(successes), int(trials), low, high, confidence)


def clopper_pearson_low(successes: int, trials: int, *, confidence: float = LEVEL) -> float:
    """Return the exact one-sided lower limit of a success rate: "at least this much".

    >>> round(clopper_pearson_low(100, 100), 4)
    0.9705
    """
    _require(successes, trials, confidence)
    if successes == 0:
        return 0.0
    from scipy.special import betaincinv

    return float(betaincinv(successes, trials - successes + 1, 1 - confidence))


def clopper_pearson_high(successes: int, trials: int, *, confidence: float = LEVEL) -> float:
    """Return the exact one-sided upper limit of a success rate: "at most this much".

    >>> round(clopper_pearson_high(0, 100), 4)
    0.0295
    """
    _require(successes, trials, confidence)
    if successes == trials:
        return 1.0
    from scipy.special import betainccinv

    return float(betainccinv(successes + 1, trials - successes, 1 - confidence))


def pooled_share(counts: Sequence[tuple[int, int]], *, confidence: float = LEVEL) -> Interval:
    """Return a success rate pooled over groups, each with its (successes, trials).

    The interval covers two intervals: that of a ratio estimate with groups as units, and the exact
    one of all trials, which is wider if groups hardly differ. One group has only the latter.

    >>> found = pooled_share([(5, 5)])
    >>> found.estimate, round(found.low, 3), found.high
    (1.0, 0.478, 1.0)
    """
    successes, trials = (sum(column) for column in zip(*counts, strict=True))
    exact = clopper_pearson(successes, trials, confidence=confidence)
    rate, units = exact.rate, len(counts)
    if units == 1:
        return exact.interval
    residuals = np.array([s - rate * n for s, n in counts])
    error = float(np.sqrt(units / (units - 1) * np.square(residuals).sum())) / trials
    reach = student_quantile(confidence, units - 1) * error
    low, high = min(exact.low, rate - reach), max(exact.high, rate + reach)
    return Interval(rate, max(0.0, low), min(1.0, high), confidence)


def difference_of_shares(
    one: tuple[int, int], other: tuple[int, int], *, confidence: float = LEVEL
) -> Interval:
    """Return the difference of two independent success rates, each (successes, trials).

    The interval is Newcombe's hybrid of two score intervals (Newcombe 1998, method 10).

    >>> found = difference_of_shares((56, 70), (48, 80))
    >>> round(found.estimate, 4), round(found.low, 4), round(found.high, 4)
    (0.2, 0.0524, 0.3339)
    """
    low, high = _score_interval(*one, confidence)
    low_other, high_other = _score_interval(*other, confidence)
    p, q = one[0] / one[1], other[0] / other[1]
    below = math.hypot(p - low, high_other - q)
    above = math.hypot(high - p, q - low_other)
    return Interval(p - q, max(-1.0, p - q - below), min(1.0, p - q + above), confidence)


def _score_interval(successes: int, trials: int, confidence: float) -> tuple[float, float]:
    """Wilson's score interval of a rate (Wilson 1927)."""
    _require(successes, trials, confidence)
    if trials == 0:
        raise InputError("a rate needs trials, got none")
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    rate, weight = successes / trials, z * z / trials
    middle = rate + weight / 2
    reach = z * math.sqrt((rate * (1 - rate) + weight / 4) / trials)
    return max(0.0, (middle - reach) / (1 + weight)), min(1.0, (middle + reach) / (1 + weight))


def _require(successes: int, trials: int, confidence: float) -> None:
    if not 0 <= successes <= trials:
        raise InputError(f"successes must lie between 0 and trials, got {successes} of {trials}")
    require_level(confidence)
