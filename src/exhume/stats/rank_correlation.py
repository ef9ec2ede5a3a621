"""Spearman's rank correlation."""

from __future__ import annotations

import numpy as np

from exhume.protocol.arrays import Array


def rank_correlation(one: Array, other: Array) -> float:
    """Return Spearman's correlation of two samples, (n,) each; equal values share a rank.

    >>> rank_correlation(np.array([1.0, 2.0, 2.0, 9.0]), np.array([0.1, 0.2, 0.2, 0.3]))
    1.0
    """
    return float(np.clip(np.corrcoef(_ranks(one), _ranks(other))[0, 1], -1.0, 1.0))


def _ranks(values: Array) -> Array:
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    ranks: Array = (last - (count - 1) / 2.0)[place]
    return ranks
