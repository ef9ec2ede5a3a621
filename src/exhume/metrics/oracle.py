"""The nearest-neighbour oracle: how close the adversary's own records are to a target."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exhume.metrics.cost_tables import tables
from exhume.protocol.arrays import Array, FloatArray, frozen
from exhume.protocol.errors import InputError
from exhume.protocol.metric import IntArray, Metric

LEVELS = (1.0, 10.0, 50.0)
"""The percentiles Balle et al. 2022 mark in Figure 3."""


@dataclass(frozen=True, eq=False)
class Oracle:
    """The distances of the pool to k targets (Balle et al. 2022, section V-B d and Figure 3).

    ``nearest_index`` (k,) is the nearest pool record (the first of equals), ``nearest_distance``
    (k,) the metric's score of it: the default threshold of success. Row i of ``percentiles`` (k,
    levels) has the distances within which ``levels`` per cent of the pool lie around target i; for
    a similarity, the scores that this share of the pool reaches.
    """

    nearest_index: IntArray
    nearest_distance: FloatArray
    percentiles: FloatArray
    levels: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("nearest_index", "nearest_distance", "percentiles"):
            object.__setattr__(self, name, frozen(getattr(self, name)))

    @property
    def mean_distance(self) -> float:
        """The mean over targets of the distance to the nearest record: Figure 3's green line."""
        return float(self.nearest_distance.mean())

    @property
    def mean_percentiles(self) -> FloatArray:
        """The mean over targets of each percentile, (levels,): Figure 3's other lines."""
        means: FloatArray = self.percentiles.mean(axis=0)
        return means


def nearest_neighbours(
    targets: Array, pool: Array, metric: Metric, *, levels: tuple[float, ...] = LEVELS
) -> Oracle:
    """Find each target's nearest record in the adversary's pool, exactly.

    ``targets`` (k, *shape) must not be in ``pool`` (n, *shape): the pool contains the adversary's
    records. Nearest distances are the metric's own, digit for digit. Percentiles of MSE, RMSE, PSNR
    and LPIPS come from a matrix product, with an error near 1e-15 of the records' mean square.

    >>> from exhume.metrics import MSE
    >>> nearest_neighbours(np.array([[0.2]]), np.array([[1.0], [0.0]]), MSE()).nearest_index
    array([1])
    """
    _require_levels(levels)
    targets, pool = metric.checked(targets, "targets"), metric.checked(pool, "pool")
    index = np.zeros(len(targets), dtype=np.intp)
    distance = np.zeros(len(targets))
    percentiles = np.zeros((len(targets), len(levels)))
    ranks = [100 - level for level in levels] if metric.higher_is_better else list(levels)
    for table in tables(targets, pool, metric):
        rows, columns, scores = table.nearest()
        found, first = np.unique(rows, return_index=True)
        index[table.start + found] = columns[first]
        distance[table.start + found] = scores[first]
        run = slice(table.start, table.start + len(found))
        percentiles[run] = np.percentile(table.scores(), ranks, axis=1).T
    return Oracle(index, distance, percentiles, levels)


def _require_levels(levels: tuple[float, ...]) -> None:
    for level in levels:
        if not 0 <= level <= 100:
            raise InputError(f"levels are per cent, between 0 and 100, got {level}")
