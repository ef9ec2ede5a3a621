"""Bootstrap intervals of a mean, a median or any other statistic."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from exhume.protocol.arrays import Array, FloatArray, require_finite
from exhume.protocol.errors import InputError
from exhume.protocol.seeds import Seed, generator
from exhume.stats.interval import LEVEL, Interval, require_level
from exhume.stats.means import student_quantile

RESAMPLES = 2000
_RESAMPLED_ENTRIES = 1 << 21


def bootstrap_mean(
    values: Array, *, seed: Seed, confidence: float = LEVEL, resamples: int = RESAMPLES
) -> Interval:
    """Return the percentile-bootstrap interval of a mean (Efron 1979) of ``values`` (n,)."""
    return _percentile_bootstrap(values, lambda x: x.mean(axis=-1), seed, confidence, resamples)


def bootstrap_median(
    values: Array, *, seed: Seed, confidence: float = LEVEL, resamples: int = RESAMPLES
) -> Interval:
    """Return the percentile-bootstrap interval of a median (Efron 1979) of ``values`` (n,)."""
    return _percentile_bootstrap(
        values, lambda x: np.median(x, axis=-1), seed, confidence, resamples
    )


def percentile_interval(
    estimate: float, resampled: Array, *, confidence: float = LEVEL
) -> Interval:
    """Return the interval between the percentiles of a statistic over bootstrap resamples."""
    return _between(estimate, resampled, 50 * (1 - confidence), confidence)


def expanded_interval(
    estimate: float, resampled: Array, count: int, *, confidence: float = LEVEL
) -> Interval:
    """Return the expanded percentile interval (Hesterberg 2015) from resamples of ``count`` values.

    A resample varies less than the sample, and few values have heavier tails than a normal
    distribution. The percentiles are therefore moved outwards as far as Student's interval is.

    >>> found = expanded_interval(0.5, np.linspace(0.0, 1.0, 1001), 1000)
    >>> round(found.low, 3), round(found.high, 3)
    (0.025, 0.975)
    """
    from scipy.special import ndtr

    require_level(confidence)
    if count < 2:
        raise InputError(f"one value has no spread: an interval needs at least 2, got {count}")
    reach = student_quantile(confidence, count - 1) * float(np.sqrt(count / (count - 1)))
    return _between(estimate, resampled, 100 * float(ndtr(-reach)), confidence)


def _between(estimate: float, resampled: Array, tail: float, confidence: float) -> Interval:
    low, high = np.percentile(resampled, [tail, 100 - tail])
    return Interval(float(estimate), float(low), float(high), confidence)


def _percentile_bootstrap(
    values: Array,
    statistic: Callable[[FloatArray], FloatArray],
    seed: Seed,
    confidence: float,
    resamples: int,
) -> Interval:
    values = np.asarray(values, dtype=np.float64)
    require_level(confidence)
    if values.ndim != 1 or not len(values):
        raise InputError(
            f"a bootstrap needs values of shape (n,), at least one, got {values.shape}"
        )
    if resamples < 100:
        raise InputError(f"resamples must be at least 100 for an interval, got {resamples}")
    require_finite(values, "values")
    rng = generator(seed)
    rows = max(1, _RESAMPLED_ENTRIES // len(values))
    drawn = [
        statistic(values[rng.integers(len(values), size=(min(rows, resamples - i), len(values)))])
        for i in range(0, resamples, rows)
    ]
    estimate = float(statistic(values))
    return percentile_interval(estimate, np.concatenate(drawn), confidence=confidence)
