"""Statistics of targets with their intervals, alone or compared; a batch is one observation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exhume.protocol.arrays import Array, FloatArray
from exhume.stats.bootstrap import RESAMPLES, percentile_interval
from exhume.stats.interval import LEVEL, Interval
from exhume.stats.means import difference_of_means


@dataclass(frozen=True, eq=False)
class Sample:
    """The ``values`` (units, targets) behind a statistic, NaN for a target without a value.

    A unit is what was released at once: one target, or a batch. ``statistic`` is ``mean``,
    ``median`` or a quantile such as ``q05``.
    """

    values: FloatArray
    statistic: str = "mean"

    @classmethod
    def of(cls, scores: FloatArray, *, unit: int, statistic: str) -> Sample:
        """Return the scores of targets in units of ``unit`` consecutive targets."""
        whole = -(-len(scores) // unit) * unit
        padded = np.full(whole, np.nan)
        padded[: len(scores)] = scores
        rows = padded.reshape(-1, unit)
        return cls(rows[~np.isnan(rows).all(axis=1)], statistic)

    @property
    def units(self) -> int:
        """The number of units."""
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
        """Return the mean of each unit."""
        return np.asarray(np.nanmean(self.values, axis=1), dtype=np.float64)


def difference(
    left: Sample, right: Sample | float, weight: float = 1.0, *, confidence: float = LEVEL
) -> Interval:
    """Return the interval of ``left`` − ``weight`` × ``right``, over units.

    Means have Student's interval (``difference_of_means``). Other statistics are bootstrapped.
    """
    if isinstance(right, float):
        right = Sample(np.full((left.units, 1), right))
    if min(left.units, right.units) < 2:
        return Interval(np.nan, confidence=confidence)
    if left.statistic == right.statistic == "mean":
        means = left.unit_means(), weight * right.unit_means()
        return difference_of_means(*means, confidence=confidence)
    return _resampled_difference(left, right, weight, confidence)


def own(sample: Sample, *, confidence: float = LEVEL) -> Interval:
    """Return the interval of one statistic."""
    return difference(sample, 0.0, confidence=confidence)


def of_correlation(rank_correlation: float, count: int, *, confidence: float = LEVEL) -> Interval:
    """Return the interval of Spearman's correlation, by Fisher's transformation.

    The variance is Fieller's, Hartley and Pearson's 1957: 1.06 / (n − 3).
    """
    if count < 5 or abs(rank_correlation) >= 1:
        return Interval(rank_correlation, confidence=confidence)
    from scipy.special import ndtri

    reach = float(ndtri((1 + confidence) / 2)) * np.sqrt(1.06 / (count - 3))
    middle = np.arctanh(rank_correlation)
    low, high = float(np.tanh(middle - reach)), float(np.tanh(middle + reach))
    return Interval(rank_correlation, low, high, confidence)


def _resampled_difference(
    left: Sample, right: Sample, weight: float, confidence: float
) -> Interval:
    rng = np.random.default_rng(0)
    here = rng.integers(left.units, size=(RESAMPLES, left.units))
    there = here
    if left.units != right.units:
        there = rng.integers(right.units, size=(RESAMPLES, right.units))
    found = left.resampled(here) - weight * right.resampled(there)
    whole = [side.resampled(np.arange(side.units)[None])[0] for side in (left, right)]
    return percentile_interval(whole[0] - weight * whole[1], found, confidence=confidence)
