"""How sure a rate or a mean is that was measured on so many targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from exhume.arrays import Array, FloatArray, require_finite
from exhume.errors import InputError
from exhume.seeds import Seed, generator

_RESAMPLED_ENTRIES = 1 << 21


@dataclass(frozen=True)
class Proportion:
    """``successes`` of ``trials``, and the interval [low, high] that holds the true rate."""

    successes: int
    trials: int
    low: float
    high: float
    confidence: float

    @property
    def rate(self) -> float:
        """The share of successes; NaN where there was no trial."""
        return self.successes / self.trials if self.trials else float("nan")


@dataclass(frozen=True)
class Interval:
    """An estimate and the interval [low, high] around it."""

    estimate: float
    low: float
    high: float
    confidence: float


def clopper_pearson(successes: int, trials: int, *, confidence: float = 0.95) -> Proportion:
    """Return the exact two-sided interval of a success rate (Clopper and Pearson 1934).

    It holds the true rate with at least the stated probability, whatever the rate and the number of
    trials; each end errs with at most half of the rest. No trials at all leave [0, 1].

    >>> proportion = clopper_pearson(97, 100)
    >>> round(proportion.low, 3), round(proportion.high, 3)
    (0.915, 0.994)
    """
    _require_level(confidence)
    each_side = (1 + confidence) / 2
    low = clopper_pearson_low(successes, trials, confidence=each_side)
    high = clopper_pearson_high(successes, trials, confidence=each_side)
    return Proportion(int(successes), int(trials), low, high, confidence)


def clopper_pearson_low(successes: int, trials: int, *, confidence: float = 0.95) -> float:
    """Return the exact one-sided lower limit of a success rate: "at least this much".

    >>> round(clopper_pearson_low(100, 100), 4)
    0.9705
    """
    _require_counts(successes, trials)
    _require_level(confidence)
    if successes == 0:
        return 0.0
    from scipy.special import betaincinv

    return float(betaincinv(successes, trials - successes + 1, 1 - confidence))


def clopper_pearson_high(successes: int, trials: int, *, confidence: float = 0.95) -> float:
    """Return the exact one-sided upper limit of a success rate: "at most this much".

    >>> round(clopper_pearson_high(0, 100), 4)
    0.0295
    """
    _require_counts(successes, trials)
    _require_level(confidence)
    if successes == trials:
        return 1.0
    from scipy.special import betainccinv

    return float(betainccinv(successes + 1, trials - successes, 1 - confidence))


def bootstrap_mean(
    values: Array, *, seed: Seed, confidence: float = 0.95, resamples: int = 2000
) -> Interval:
    """Return the percentile-bootstrap interval of a mean (Efron 1979) of ``values`` (n,)."""
    return _bootstrap(values, lambda x: x.mean(axis=-1), seed, confidence, resamples)


def bootstrap_median(
    values: Array, *, seed: Seed, confidence: float = 0.95, resamples: int = 2000
) -> Interval:
    """Return the percentile-bootstrap interval of a median (Efron 1979) of ``values`` (n,)."""
    return _bootstrap(values, lambda x: np.median(x, axis=-1), seed, confidence, resamples)


def expanded_interval(
    resampled: Array, count: int, *, confidence: float = 0.95
) -> tuple[float, float]:
    """Return percentiles of a statistic over bootstrap resamples of ``count`` values.

    A resample spreads less than the sample does, and few values have heavier tails than a normal:
    the percentiles are moved outwards as Student's interval would be (Hesterberg 2015, expanded
    percentile interval).

    >>> low, high = expanded_interval(np.linspace(0.0, 1.0, 1001), 1000)
    >>> round(low, 3), round(high, 3)
    (0.025, 0.975)
    """
    from scipy.stats import norm, t

    _require_level(confidence)
    if count < 2:
        raise InputError(f"one value has no spread: an interval needs at least 2, got {count}")
    quantile = float(t.ppf((1 - confidence) / 2, count - 1)) * float(np.sqrt(count / (count - 1)))
    tail = 100 * float(norm.cdf(quantile))
    low, high = np.percentile(resampled, [tail, 100 - tail])
    return float(low), float(high)


def _bootstrap(
    values: Array,
    statistic: Callable[[FloatArray], FloatArray],
    seed: Seed,
    confidence: float,
    resamples: int,
) -> Interval:
    values = np.asarray(values, dtype=np.float64)
    _require_level(confidence)
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
    tails = [50 * (1 - confidence), 50 * (1 + confidence)]
    low, high = np.percentile(np.concatenate(drawn), tails)
    return Interval(float(statistic(values)), float(low), float(high), confidence)


def _require_counts(successes: int, trials: int) -> None:
    if not 0 <= successes <= trials:
        raise InputError(f"successes must lie between 0 and trials, got {successes} of {trials}")


def _require_level(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise InputError(f"confidence must lie strictly between 0 and 1, got {confidence}")
