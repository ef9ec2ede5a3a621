"""Means and mean differences with confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from exhume.protocol.arrays import FloatArray
from exhume.stats.interval import LEVEL, Interval


def student_quantile(confidence: float, degrees: int) -> float:
    """Return half the width of Student's two-sided interval, in standard errors."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, (1 + confidence) / 2))


def standard_error(values: FloatArray) -> float:
    """Return the standard error of the mean of at least two values (n,)."""
    return float(values.std(ddof=1)) / math.sqrt(len(values))


def jackknife_error(left_out: FloatArray) -> float:
    """Return the standard error of a statistic from its values (n,) without one unit each."""
    count = len(left_out)
    return math.sqrt((count - 1) / count * float(np.square(left_out - left_out.mean()).sum()))


def mean_interval(values: Sequence[float], *, confidence: float = LEVEL) -> Interval:
    """Return the mean of a few values with Student's interval, unlimited for fewer than two.

    >>> found = mean_interval([1.0, 2.0, 3.0])
    >>> found.estimate, round(found.low, 3), round(found.high, 3)
    (2.0, -0.484, 4.484)
    """
    if not len(values):
        return Interval(math.nan, confidence=confidence)
    given = np.asarray(values, dtype=np.float64)
    return difference_of_means(given, np.zeros_like(given), confidence=confidence)


def difference_of_means(
    left: FloatArray, right: FloatArray, *, confidence: float = LEVEL
) -> Interval:
    """Return the mean of ``left`` (n,) minus that of ``right`` (m,) with Student's interval.

    Samples of equal size are compared pair by pair: this is narrower if both are from the same
    units, and still valid if they are not. Otherwise the smaller sample sets the degrees of
    freedom. The interval is unlimited if a sample has fewer than two values.
    """
    middle, count = float(left.mean() - right.mean()), min(len(left), len(right))
    if count < 2:
        return Interval(middle, confidence=confidence)
    if len(left) == len(right):
        error = standard_error(left - right)
    else:
        error = math.hypot(standard_error(left), standard_error(right))
    reach = student_quantile(confidence, count - 1) * error
    return Interval(middle, middle - reach, middle + reach, confidence)


def bounded_mean_interval(mean: float, count: float, *, confidence: float = LEVEL) -> Interval:
    """Return the interval of an expectation from the mean of ``count`` numbers in [0, 1].

    The numbers are independent. Both ends are the Chernoff bound of Hoeffding 1963, Theorem 1.

    >>> found = bounded_mean_interval(0.0, 50)
    >>> found.low, round(found.high, 3)
    (0.0, 0.071)
    """
    limit = math.log(2.0 / (1.0 - confidence)) / count
    return Interval(mean, _edge(mean, 0.0, limit), _edge(mean, 1.0, limit), confidence)


def _edge(mean: float, end: float, limit: float) -> float:
    """Return the point between ``mean`` and ``end`` at which the divergence reaches the limit."""
    if _divergence(mean, end) <= limit:
        return end
    inside, outside = mean, end
    for _ in range(60):
        middle = 0.5 * (inside + outside)
        inside, outside = (
            (middle, outside) if _divergence(mean, middle) <= limit else (inside, middle)
        )
    return outside


def _divergence(p: float, q: float) -> float:
    """Return the relative entropy of two Bernoulli distributions with probabilities p and q."""
    total = 0.0
    for mine, theirs in ((p, q), (1.0 - p, 1.0 - q)):
        if mine > 0.0:
            total += math.inf if theirs <= 0.0 else mine * math.log(mine / theirs)
    return total
