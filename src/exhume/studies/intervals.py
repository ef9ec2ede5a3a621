"""How far a figure may be off: 95 % intervals over targets, those of one batch taken together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exhume.arrays import Array, FloatArray

_LEVEL = 0.95
_RESAMPLES = 2000


@dataclass(frozen=True)
class Interval:
    """Where a number lies with 95 % confidence; without limits where nothing tells."""

    low: float
    high: float

    @property
    def half(self) -> float:
        """Half of its width."""
        return (self.high - self.low) / 2


UNKNOWN = Interval(-np.inf, np.inf)


@dataclass(frozen=True, eq=False)
class Sample:
    """What a figure was computed from: ``values`` by unit, a row of targets each.

    A unit is what was released at once: a target on its own, or a batch. Targets without a value
    are NaN. ``statistic`` is ``mean``, ``median`` or a quantile such as ``q05``.
    """

    values: FloatArray
    statistic: str = "mean"

    @classmethod
    def of(cls, scores: FloatArray, *, unit: int, statistic: str) -> Sample:
        """Return targets' scores in units of ``unit`` targets one after the other."""
        whole = -(-len(scores) // unit) * unit
        padded = np.full(whole, np.nan)
        padded[: len(scores)] = scores
        rows = padded.reshape(-1, unit)
        return cls(rows[~np.isnan(rows).all(axis=1)], statistic)

    @property
    def units(self) -> int:
        """How many units there are."""
        return len(self.values)

    def resampled(self, chosen: Array) -> FloatArray:
        """Return the statistic over each row of ``chosen`` units."""
        values = self.values[chosen].reshape(len(chosen), -1)
        if self.statistic == "mean":
            return np.asarray(np.nanmean(values, axis=1), dtype=np.float64)
        level = 0.5 if self.statistic == "median" else float(f"0.{self.statistic[1:]}")
        quantile = np.quantile if np.isfinite(values).all() else np.nanquantile
        return np.asarray(quantile(values, level, axis=1), dtype=np.float64)

    def unit_means(self) -> FloatArray:
        """Return every unit's mean."""
        return np.asarray(np.nanmean(self.values, axis=1), dtype=np.float64)


def difference(left: Sample, right: Sample | float, weight: float = 1.0) -> Interval:
    """Return the interval of ``left`` − ``weight`` × ``right``, over units.

    Means have Student's interval: of the differences unit by unit where both have as many, which
    is narrower where they are of the same targets and no less valid where they are not; else with
    the degrees of freedom of the smaller one. Other statistics are bootstrapped.
    """
    if isinstance(right, float):
        right = Sample(np.full((left.units, 1), right))
    if min(left.units, right.units) < 2:
        return UNKNOWN
    if left.statistic == right.statistic == "mean":
        return _student(left.unit_means(), weight * right.unit_means())
    return _bootstrap(left, right, weight)


def own(sample: Sample) -> Interval:
    """Return the interval of one figure."""
    return difference(sample, 0.0)


def of_correlation(rank_correlation: float, count: int) -> Interval:
    """Return the interval of Spearman's correlation, by Fisher's transformation.

    The variance is Fieller's, Hartley and Pearson's 1957: 1.06 / (n − 3).
    """
    if count < 5 or abs(rank_correlation) >= 1:
        return UNKNOWN
    from scipy.stats import norm

    reach = float(norm.ppf((1 + _LEVEL) / 2)) * np.sqrt(1.06 / (count - 3))
    middle = np.arctanh(rank_correlation)
    return Interval(float(np.tanh(middle - reach)), float(np.tanh(middle + reach)))


def _student(left: FloatArray, right: FloatArray) -> Interval:
    from scipy.stats import t

    middle = float(left.mean() - right.mean())
    if len(left) == len(right):
        error = float((left - right).std(ddof=1)) / np.sqrt(len(left))
    else:
        error = float(np.sqrt(left.var(ddof=1) / len(left) + right.var(ddof=1) / len(right)))
    reach = float(t.ppf((1 + _LEVEL) / 2, min(len(left), len(right)) - 1)) * error
    return Interval(middle - reach, middle + reach)


def _bootstrap(left: Sample, right: Sample, weight: float) -> Interval:
    rng = np.random.default_rng(0)
    here = rng.integers(left.units, size=(_RESAMPLES, left.units))
    there = here
    if left.units != right.units:
        there = rng.integers(right.units, size=(_RESAMPLES, right.units))
    found = left.resampled(here) - weight * right.resampled(there)
    low, high = np.quantile(found, ((1 - _LEVEL) / 2, (1 + _LEVEL) / 2))
    return Interval(float(low), float(high))
