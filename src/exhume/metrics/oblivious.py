"""The blind guess: the success of an adversary that never looks at the release.

Every function here that chooses a guess sees only the pool. Targets are used only to score the
guess.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exhume.metrics.cost_tables import CostTable, tables
from exhume.protocol.arrays import Array, FloatArray, frozen
from exhume.protocol.errors import InputError
from exhume.protocol.metric import BoolArray, IntArray, Metric

MEAN = -1
"""The index that stands for the pool's mean among the candidates."""
JUDGES = 2000
"""The default number of pool records, evenly spaced, that judge the candidates."""


@dataclass(frozen=True, eq=False)
class ConstantGuess:
    """One record, guessed whatever the target: ``index`` in the pool, or -1 for the pool's mean.

    ``successes`` of ``trials`` judges in the pool would have been hit. The guess was selected by
    this rate, so it is too high; ``kappa_of_constant`` on the targets gives the unbiased rate.
    """

    record: FloatArray
    index: int
    successes: int
    trials: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "record", frozen(self.record, dtype=np.float64))


def kappa_of_constant(
    guess: Array, targets: Array, thresholds: Array | float, metric: Metric
) -> BoolArray:
    """Return which targets (k, *shape) the constant ``guess`` hits, (k,): l(z, guess) <= eta(z).

    ``thresholds`` is one eta for all, or one per target, such as an Oracle's ``nearest_distance``.
    The share of hits estimates the success kappa of a blind guess from below: this is one guess,
    not a bound on all of them (Balle et al. 2022, Definition 2).
    """
    targets = np.asarray(targets)
    limits = np.asarray(thresholds, dtype=np.float64)
    if limits.ndim and limits.shape != (len(targets),):
        raise InputError(
            f"thresholds need shape ({len(targets)},) or one number, got {limits.shape}"
        )
    return metric.reaches(metric(targets, _repeat(guess, targets.shape)), limits)


def best_constant_guess(
    pool: Array, metric: Metric, *, eta: float | None = None, judges: int = JUDGES
) -> ConstantGuess:
    """Choose the constant guess that hits the most pool records: the pool's mean, or one of them.

    A pool record z is hit by a guess at least as close as ``eta`` or, where ``eta`` is None, as z's
    own nearest other record: the threshold the oracle gives a target. At most ``judges`` evenly
    spaced pool records serve as z, never against themselves. In a tie the mean wins, then the first
    record.
    """
    pool = _checked_pool(pool, metric)
    judging = _judges(len(pool), judges)
    hits = np.zeros(len(pool), dtype=np.intp)
    limits = np.full(len(judging), np.nan if eta is None else eta)
    for table in tables(pool[judging], pool, metric, left_out=judging):
        if eta is None:
            rows, columns, scores = table.nearest()
            limits[table.start + rows] = scores
        else:
            columns = _within(table, eta)
        hits += np.bincount(columns, minlength=len(pool))
    scores_of_mean = metric(pool[judging], _means_without(pool, judging))
    hits_of_mean = int(metric.reaches(scores_of_mean, limits).sum())
    trials = _trials(len(pool), judging)
    best = int(np.argmax(hits / trials))
    if hits_of_mean * trials[best] >= hits[best] * len(judging):
        return ConstantGuess(pool.mean(axis=0), MEAN, hits_of_mean, len(judging))
    return ConstantGuess(pool[best], best, int(hits[best]), int(trials[best]))


def _within(table: CostTable, eta: float) -> IntArray:
    """Return the column of every pair of the table that reaches ``eta``; close calls are exact."""
    counts = np.isfinite(table.costs)
    surely = counts & table.metric.reaches(table.scores(offset=+1.0), eta)
    perhaps = counts & ~surely & table.metric.reaches(table.scores(offset=-1.0), eta)
    rows, columns = np.nonzero(perhaps)
    close = columns[table.metric.reaches(table.exact_scores(rows, columns), eta)]
    return np.concatenate([np.nonzero(surely)[1], close])


def _checked_pool(pool: Array, metric: Metric) -> FloatArray:
    """Return the pool as float64, checked against the metric's range, with at least two records."""
    checked = metric.checked(pool, "pool")
    if len(checked) < 2:
        raise InputError(f"choosing a constant guess needs a pool of 2 records, got {len(checked)}")
    return checked


def _judges(records: int, judges: int) -> IntArray:
    if judges < 2:
        raise InputError(f"judges must be at least 2, got {judges}")
    return np.unique(np.linspace(0, records - 1, min(judges, records)).round().astype(np.intp))


def _trials(records: int, judging: IntArray) -> IntArray:
    """Return how many judges each candidate has: all, or all but itself."""
    trials = np.full(records, len(judging), dtype=np.intp)
    trials[judging] -= 1
    return trials


def _means_without(pool: FloatArray, judging: IntArray) -> FloatArray:
    """Return for each judge the mean of the other records, without the judge itself."""
    others: FloatArray = (pool.sum(axis=0) - pool[judging]) / (len(pool) - 1)
    return np.clip(others, pool.min(), pool.max())


def _repeat(guess: Array, shape: tuple[int, ...]) -> Array:
    guess = np.asarray(guess)
    if guess.shape != shape[1:]:
        raise InputError(f"the guess has shape {guess.shape}, a target {shape[1:]}")
    return np.broadcast_to(guess, shape)
