"""The assignment of candidates to the records of a batch, without an oracle's choice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exhume.protocol.arrays import Array, FloatArray, frozen
from exhume.protocol.metric import BoolArray, IntArray, Metric


@dataclass(frozen=True, eq=False)
class Match:
    """For each of k records the candidate assigned to it, and its score.

    ``indices`` (k,) point into the samples; a record left without a candidate has index -1 and
    score NaN, and ``Metric.reaches`` counts it as a failure.
    """

    indices: IntArray
    scores: FloatArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "indices", frozen(self.indices, dtype=np.intp))
        object.__setattr__(self, "scores", frozen(self.scores, dtype=np.float64))

    @property
    def matched(self) -> BoolArray:
        """Which records have a candidate, (k,)."""
        return self.indices >= 0


def match(truth: Array, samples: Array, metric: Metric) -> Match:
    """Assign the first k candidates to the k records so that the total score is the best.

    A release does not show the order of a batch, so the order of candidates does not count. Only
    the first k candidates count, one per record: selecting among more of them with the truth would
    report an oracle's success as the attack's. With fewer candidates than records, the records that
    fit worst stay unmatched.

    >>> from exhume.metrics import MSE
    >>> match(np.array([[0.0], [1.0]]), np.array([[0.9], [0.1], [0.0]]), MSE()).indices
    array([1, 0])
    """
    truth, samples = np.asarray(truth), np.asarray(samples)
    table = metric.pairwise(truth, samples[: len(truth)])
    from scipy.optimize import linear_sum_assignment

    records, candidates = linear_sum_assignment(table, maximize=metric.higher_is_better)
    indices = np.full(len(truth), -1, dtype=np.intp)
    indices[records] = candidates
    return Match(indices, _scores(truth, samples, indices, metric))


def score(truth: Array, samples: Array, metric: Metric) -> FloatArray:
    """Match a reconstruction's samples to k records and return the scores, (k,); see ``match``."""
    return match(truth, samples, metric).scores


def rms_apart(one: Array, other: Array) -> float:
    """Return the root-mean-square difference of two batches after the best assignment.

    >>> rms_apart(np.array([[0.0], [1.0]]), np.array([[1.0], [0.0]]))
    0.0
    """
    from exhume.metrics.error import MSE

    return float(np.sqrt(match(one, other, MSE()).scores.mean()))


def _scores(truth: Array, samples: Array, indices: IntArray, metric: Metric) -> FloatArray:
    """Score pairs by the metric's own call, so that a score does not depend on the matching."""
    scores = np.full(len(truth), np.nan)
    found = indices >= 0
    if found.any():
        scores[found] = metric(truth[found], samples[indices[found]])
    return scores
