"""The area under the ROC curve, with an interval that holds for any number of trials."""

from __future__ import annotations

import math

import numpy as np

from exhume.arrays import FloatArray
from exhume.metrics.confidence import Interval


def auc_interval(members: FloatArray, others: FloatArray, *, confidence: float = 0.95) -> Interval:
    """Return the chance that a member's score exceeds another's, ties counting half.

    The interval holds whatever the scores' distribution: a two-sample U statistic is an average of
    means of min(n, m) independent numbers in [0, 1] and keeps their Chernoff bound (Hoeffding 1963,
    §5 with Theorem 1). It is wide, but never too narrow. Without scores on one side it is [0, 1].

    >>> found = auc_interval(np.arange(50.0), np.arange(50.0) - 50)
    >>> found.estimate, round(found.low, 3), found.high
    (1.0, 0.929, 1.0)
    """
    pairs = min(len(members), len(others))
    if pairs == 0:
        return Interval(float("nan"), 0.0, 1.0, confidence)
    ordered = np.sort(others)
    below = np.searchsorted(ordered, members, side="left")
    through = np.searchsorted(ordered, members, side="right")
    area = float((below + through).mean()) / (2.0 * len(others))
    return mean_interval(area, pairs, confidence=confidence)


def mean_interval(mean: float, count: float, *, confidence: float = 0.95) -> Interval:
    """Return what the mean of ``count`` independent numbers in [0, 1] says of their expectation.

    The Chernoff bound of Hoeffding 1963, Theorem 1, on either side.

    >>> found = mean_interval(0.0, 50)
    >>> found.low, round(found.high, 3)
    (0.0, 0.071)
    """
    budget = math.log(2.0 / (1.0 - confidence)) / count
    low = _edge(mean, 0.0, budget)
    return Interval(mean, low, _edge(mean, 1.0, budget), confidence)


def _edge(area: float, end: float, budget: float) -> float:
    """The point between ``area`` and ``end`` where the divergence reaches the budget."""
    if _divergence(area, end) <= budget:
        return end
    inside, outside = area, end
    for _ in range(60):
        middle = 0.5 * (inside + outside)
        inside, outside = (
            (middle, outside) if _divergence(area, middle) <= budget else (inside, middle)
        )
    return outside


def _divergence(p: float, q: float) -> float:
    """The relative entropy of coins with chances p and q."""
    total = 0.0
    for mine, theirs in ((p, q), (1.0 - p, 1.0 - q)):
        if mine > 0.0:
            total += math.inf if theirs <= 0.0 else mine * math.log(mine / theirs)
    return total
