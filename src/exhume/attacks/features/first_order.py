"""First order: what a head's gradient says of its inputs through a plain regression."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exhume.arrays import FloatArray
from exhume.attacks.features.head import Head

_RIDGE = 1e-9


@dataclass(frozen=True, eq=False)
class FirstOrder:
    """G ≈ 1·cᵀ + W·C: ``intercept`` c (K,), ``slopes`` C (d, K), ``rest`` (rows, K) of G.

    By Stein's lemma C → Σᵢ E[σ′(w·zᵢ)] zᵢ rᵢᵀ as the width grows: its columns lie in the span of
    the features. ``rest`` is what is left of G on the units that moments are taken over; its mean
    and its first moment are 0 by construction, so Hermite moments of it need no correction.
    """

    intercept: FloatArray
    slopes: FloatArray
    rest: FloatArray

    def span(self, count: int) -> FloatArray:
        """Return up to ``count`` orthonormal directions (·, d) that hold most of C.

        The features themselves where they have distinct labels and are fewer than the classes.
        """
        left, _, _ = np.linalg.svd(self.slopes, full_matrices=False)
        return left[:, :count].T


def first_order(head: Head, gradient: FloatArray, weights: FloatArray | None = None) -> FirstOrder:
    """Regress ``gradient`` (m, K) on the hidden weights, and a constant and biases beside them.

    ``weights`` (m, K) say how much an entry counts, where a defence left holes: each output then
    has a regression of its own, and what is left of an entry counts as much. Memory: one more copy
    of W at most, two with weights.
    """
    rows = head.moment_rows
    design = _design(head)
    observed, dimension = gradient[rows], head.dimension
    if weights is None:
        found = _solved(design.T @ design, design.T @ observed)
        return FirstOrder(found[dimension], found[:dimension], observed - design @ found)
    counted, columns = weights[rows], list[FloatArray]()
    for k in range(observed.shape[1]):
        weighed = design.T * counted[:, k]
        columns.append(_solved(weighed @ design, weighed @ observed[:, k]))
    found = np.stack(columns, axis=1)
    rest = counted * (observed - design @ found)
    return FirstOrder(found[dimension], found[:dimension], rest)


def _solved(gram: FloatArray, right: FloatArray) -> FloatArray:
    gram[np.diag_indices_from(gram)] += _RIDGE * np.trace(gram) / len(gram)
    return np.asarray(np.linalg.solve(gram, right), dtype=np.float64)


def _design(head: Head) -> FloatArray:
    rows = head.moment_rows
    columns = [head.weights[rows], np.ones((int(rows.sum()), 1))]
    if head.offsets is not None and np.ptp(head.offsets) > 0:
        columns.append(head.offsets[rows, None])
    return np.concatenate(columns, axis=1)
