"""The rows of many searches as one answer: aligned, pooled, and how far they agree."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.schema import Schema

_UNLIKE = 1e6
"""The cost of pairing rows of different labels: more than any distance of two rows."""


@dataclass(frozen=True, eq=False)
class Pooled:
    """Rows (n, width) pooled over searches, and the certainty (n, columns) of each cell in [0, 1].

    The certainty of a category is 1 − H / log K by the entropy of its pooled probabilities over K
    levels; that of a number is 1 − s/σ by the deviation s of the searches and that of the known
    records σ. Both are 1 where all searches agree, and 0 where they are as far apart as guesses.
    """

    rows: FloatArray
    certainty: FloatArray


def pooled(
    schema: Schema, rows: FloatArray, losses: FloatArray, labels: Array, spread: FloatArray
) -> Pooled:
    """Pool the rows (searches, n, width) of searches with these losses and labels (searches, n).

    Rows of each search are assigned to those of the search with the lowest loss (Vero et al. 2023,
    section 4.2). Numbers take the median, categories the mean of their probabilities.
    """
    best = int(np.argmin(losses))
    aligned = np.stack(
        [
            one[_assigned(rows[best], one, labels[best], own, spread)]
            for one, own in zip(rows, labels, strict=True)
        ]
    )
    made, certainty = np.empty_like(rows[best]), np.empty((rows.shape[1], len(schema.columns)))
    for i, (column, place) in enumerate(zip(schema.columns, schema.places, strict=True)):
        cells = aligned[:, :, place]
        if column.kind.numeric:
            made[:, place] = np.median(cells, axis=0)
            apart = cells[:, :, 0].std(axis=0) / spread[place.start]
            certainty[:, i] = 1.0 - np.minimum(apart, 1.0)
        else:
            shares = cells.mean(axis=0)
            made[:, place] = shares
            certainty[:, i] = 1.0 - entropy(shares)
    return Pooled(made, certainty)


def entropy(shares: FloatArray) -> FloatArray:
    """Return the entropy (n,) of probabilities (n, levels) over its largest value.

    >>> entropy(np.array([[0.5, 0.5], [1.0, 0.0]])).tolist()
    [1.0, 0.0]
    """
    levels = shares.shape[1]
    if levels < 2:
        return np.zeros(len(shares))
    known = np.where(shares > 0, shares, 1.0)
    found = -(known * np.log(known)).sum(axis=1) / np.log(levels)
    return np.asarray(np.clip(found, 0.0, 1.0) + 0.0)


def _assigned(
    reference: FloatArray, rows: FloatArray, wanted: Array, labels: Array, spread: FloatArray
) -> Array:
    """Return which of ``rows`` belongs to each row of the reference: nearest, of its label."""
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist

    costs = cdist(reference / spread, rows / spread, "sqeuclidean")
    unlike = np.asarray(wanted)[:, None] != np.asarray(labels)[None, :]
    return np.asarray(linear_sum_assignment(np.where(unlike, costs + _UNLIKE, costs))[1])
