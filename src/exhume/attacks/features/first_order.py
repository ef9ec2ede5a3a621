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


def first_order(head: Head, gradient: FloatArray) -> FirstOrder:
    """Regress ``gradient`` (m, K) on the hidden weights, and a constant and biases beside them.

    Memory: one more copy of W at most.
    """
    rows = head.moment_rows
    design = _design(head)
    observed = gradient[rows]
    gram = design.T @ design
    gram[np.diag_indices_from(gram)] += _RIDGE * np.trace(gram) / len(gram)
    found = np.linalg.solve(gram, design.T @ observed)
    dimension = head.dimension
    return FirstOrder(found[dimension], found[:dimension], observed - design @ found)


def _design(head: Head) -> FloatArray:
    rows = head.moment_rows
    columns = [head.weights[rows], np.ones((int(rows.sum()), 1))]
    if head.offsets is not None and np.ptp(head.offsets) > 0:
        columns.append(head.offsets[rows, None])
    return np.concatenate(columns, axis=1)
