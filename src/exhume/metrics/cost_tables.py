"""Distances of targets to a large pool: a fast matrix product, with exact close decisions.

For the metrics that depend on one Euclidean distance, ‖a − b‖² = ‖a‖² + ‖b‖² − 2⟨a, b⟩ makes the
whole table a matrix product. It loses digits if a and b are close. So the table has a bound on its
own error, and the metric itself repeats every decision within this bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from exhume.metrics.error import EuclideanMetric
from exhume.protocol.arrays import FloatArray
from exhume.protocol.errors import InputError
from exhume.protocol.metric import IntArray, Metric

TABLE_ENTRIES = 1 << 23
"""Entries of one table (64 MB in float64), and of one block of the pool."""
_OTHER_SLACK = 1e-10
"""The rounding difference between a metric's own table and its scores of single pairs."""


@dataclass(frozen=True, eq=False)
class CostTable:
    """Costs of a run of targets against the whole pool; smaller is closer.

    ``costs`` (r, n) are mean squared differences for a EuclideanMetric and else the scores (with
    the sign turned for a similarity); infinite if a pool record does not count for that target. The
    true cost lies within ``slack`` (r, 1) of each. The first row is target number ``start``.
    """

    metric: Metric
    targets: FloatArray
    pool: FloatArray
    start: int
    costs: FloatArray
    slack: FloatArray

    def scores(self, offset: float = 0.0) -> FloatArray:
        """Return the table as scores; ``offset`` moves each by that many times its error bound."""
        costs = self.costs if offset == 0 else self.costs + offset * self.slack
        if isinstance(self.metric, EuclideanMetric):
            return self.metric.from_mean_square(np.maximum(costs, 0.0))
        return -costs if self.metric.higher_is_better else costs

    def exact_scores(self, rows: IntArray, columns: IntArray) -> FloatArray:
        """Score the pairs (rows, columns) of this table by the metric itself."""
        size = max(1, TABLE_ENTRIES // max(1, self.pool[0].size))
        parts = [
            self.metric(
                self.targets[self.start + rows[i : i + size]], self.pool[columns[i : i + size]]
            )
            for i in range(0, len(rows), size)
        ]
        return np.concatenate(parts) if parts else np.empty(0)

    def nearest(self) -> tuple[IntArray, IntArray, FloatArray]:
        """Return (rows, columns, scores) of the nearest records, exactly; all of them in a tie."""
        reach = self.costs.min(axis=1, keepdims=True) + 2 * self.slack
        rows, columns = np.nonzero((self.costs <= reach) & np.isfinite(self.costs))
        scores = self.exact_scores(rows, columns)
        costs = -scores if self.metric.higher_is_better else scores
        best = np.full(len(self.costs), np.inf)
        np.minimum.at(best, rows, costs)
        won = costs == best[rows]
        return rows[won], columns[won], scores[won]


def tables(
    targets: FloatArray, pool: FloatArray, metric: Metric, *, left_out: IntArray | None = None
) -> Iterator[CostTable]:
    """Compare targets (k, *shape) with a pool (n, *shape), a bounded number of targets at a time.

    ``left_out`` (k,) names for each target the one pool record that does not count: itself, if the
    targets are members of the pool. Both arrays have passed ``metric.checked``.
    """
    if targets.shape[1:] != pool.shape[1:]:
        raise InputError(
            f"a target has shape {targets.shape[1:]}, a pool record {pool.shape[1:]}: "
            "both must be the same"
        )
    if not len(pool):
        raise InputError("the pool is empty: there is no record to be nearest to a target")
    rows = max(1, TABLE_ENTRIES // len(pool))
    centre = _centre(pool, metric)
    for start in range(0, len(targets), rows):
        run = targets[start : start + rows]
        costs, slack = _costs(run, pool, metric, centre)
        if left_out is not None:
            costs[np.arange(len(run)), left_out[start : start + rows]] = np.inf
        yield CostTable(metric, targets, pool, start, costs, slack)


def _centre(pool: FloatArray, metric: Metric) -> FloatArray | None:
    """Return a central point of the pool: differences to it are short, which preserves digits."""
    if not isinstance(metric, EuclideanMetric):
        return None
    centre: FloatArray = metric.embed(pool[: _block_length(pool)]).mean(axis=0)
    return centre


def _costs(
    targets: FloatArray, pool: FloatArray, metric: Metric, centre: FloatArray | None
) -> tuple[FloatArray, FloatArray]:
    if centre is None or not isinstance(metric, EuclideanMetric):
        scores = metric.pairwise(targets, pool)
        slack = _OTHER_SLACK * np.maximum(1.0, np.abs(scores).max(axis=1, keepdims=True))
        return (-scores if metric.higher_is_better else scores), slack
    rows = metric.embed(targets) - centre
    row_squares = np.square(rows).sum(axis=1, keepdims=True)
    costs = np.empty((len(targets), len(pool)))
    longest = 0.0
    length = _block_length(pool)
    for start in range(0, len(pool), length):
        columns = metric.embed(pool[start : start + length]) - centre
        squares = np.square(columns).sum(axis=1)
        longest = max(longest, float(squares.max()))
        block = costs[:, start : start + length]
        np.matmul(rows, columns.T, out=block)
        block *= -2.0
        block += squares
    costs += row_squares
    size = len(centre)
    costs /= size
    return costs, _error_bound(size) * (row_squares + longest) / size


def _error_bound(size: int) -> float:
    """Bound the relative error of a sum of ``size`` products in any order, with a margin."""
    return (2 * size + 64) * float(np.finfo(np.float64).eps)


def _block_length(pool: FloatArray) -> int:
    return max(1, TABLE_ENTRIES // max(1, int(pool[0].size)))
