"""κ from samples of the prior: with a stated confidence, the estimate is never too small.

Counting the samples within η of each sample is not sound, because the best guess need not be a
sample. Take points on a sphere of radius η: no two of them may be within η of each other, but the
centre is within η of all. Such a count *under*estimates κ, and an attack can exceed a ceiling
computed from it. Exhume therefore does not offer it.

The proof. Let B be a ball of radius η whose mass m is as close to κ as desired. B is a fixed set
that does not depend on the samples. So the number N of the n samples in B is Binomial(n, m), and by
Clopper and Pearson m ≤ U(N) with the stated confidence, where U is increasing. B is unknown, and so
is N. But N ≤ K, the largest number of samples in *any* ball of radius η. So m ≤ U(K), and κ ≤
U(K) as m tends to κ. Comparing many centres needs no correction: the confidence is used for B
alone. The case that no sample lies in B is included (N = 0 ≤ K).

Success may depend on the record: then η is a function η(z), fixed before the samples are drawn, and
B is the set of records z within η(z) of a guess. This is again a fixed set, and both bounds below
hold with each sample's own η.

K itself would need a search over all centres; two upper bounds on it are enough.

- ``doubled-radius``, any metric: samples on which one guess succeeds are within η + η′ ≤ 2η of each
  other, so K is at most the largest number of such neighbours of a sample (itself included).
  Better: k samples that are all neighbours remain if samples with fewer than k - 1 neighbours are
  removed repeatedly, so K is at most the largest k for which any sample remains.
- ``mean-distance``, Euclidean distance, far smaller in high dimension: suppose that one guess
  succeeds on k samples. The squared distances over all ordered pairs of them sum to 2k times their
  squared distances from their mean. These are at most the squared distances from the guess, so the
  sum is at most 2k·Ση². Let s be the sum of a sample's k - 1 smallest squared distances. Then the k
  smallest values of s - 2kη² add up to at most 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exhume.bounds.checks import require_not_negative
from exhume.protocol.arrays import FloatArray, require_finite
from exhume.protocol.errors import InputError
from exhume.stats.proportions import clopper_pearson_high

_METHODS = ("mean-distance", "doubled-radius")
MOST_SAMPLES = 8000
"""More samples would need a gigabyte for their pairwise distances."""
_SLACK = 1e-9
"""Relative tolerance of computed distances, so that rounding never removes a neighbour."""


@dataclass(frozen=True)
class KappaEstimate:
    """An upper bound on κ from samples: true with probability ``confidence`` over the samples.

    ``most_in_a_ball`` bounds how many of the ``samples`` one guess succeeds on.
    """

    kappa: float
    confidence: float
    most_in_a_ball: int
    samples: int
    method: str


def kappa_from_samples(
    samples: ArrayLike, *, eta: ArrayLike, confidence: float = 0.95, method: str = "mean-distance"
) -> KappaEstimate:
    """An upper confidence bound on κ(η) under the Euclidean distance, from independent samples.

    ``samples`` has shape (n, *record shape), n ≥ 2. ``eta`` is a Euclidean distance (for a
    threshold on the mean squared error of d numbers pass √(d·threshold)). It is one number for all
    samples, or one per sample: η(z), if success depends on the record but not on the other samples.
    ``method`` is ``"mean-distance"`` or ``"doubled-radius"``; the module's text proves both.
    """
    squared = _squared_distances(_flat(samples))
    radii = _radii(eta, len(squared))
    if _known(method) == "mean-distance":
        most = _most_by_mean_distance(squared, radii)
    else:
        most = _most_by_doubled_radius(np.sqrt(squared), radii)
    return _estimate(most, len(squared), confidence, method)


def kappa_from_distances(
    distances: ArrayLike, *, eta: ArrayLike, confidence: float = 0.95
) -> KappaEstimate:
    """An upper confidence bound on κ(η) under any metric, from the samples' distances (n, n).

    The distance must obey the triangle inequality: a squared error does not, its root does. ``eta``
    is one number or one per sample. Method ``doubled-radius`` of the module's text.
    """
    table = _distance_table(distances)
    most = _most_by_doubled_radius(table, _radii(eta, len(table)))
    return _estimate(most, len(table), confidence, "doubled-radius")


def kappa_of_pool(pool: ArrayLike, *, eta: ArrayLike, method: str = "mean-distance") -> float:
    """An upper bound on κ(η) if the prior *is* the pool, with equally likely records.

    ``pool`` has shape (n, *record shape). A guess may lie anywhere. The distance is Euclidean;
    ``eta`` is one number or one per record. Nothing is estimated, so no confidence is involved.

    >>> kappa_of_pool([[0.0], [1.0], [5.0], [9.0]], eta=0.5)
    0.5
    """
    squared = _squared_distances(_flat(pool))
    radii = _radii(eta, len(squared))
    if _known(method) == "mean-distance":
        return _most_by_mean_distance(squared, radii) / len(squared)
    return _most_by_doubled_radius(np.sqrt(squared), radii) / len(squared)


def _estimate(most: int, samples: int, confidence: float, method: str) -> KappaEstimate:
    kappa = clopper_pearson_high(most, samples, confidence=confidence)
    return KappaEstimate(kappa, float(confidence), most, samples, method)


def _known(method: str) -> str:
    if method == "naive":
        raise InputError(
            "there is no naive kappa: counting samples within eta of a sample underestimates it, "
            "since the best guess need not be a sample; use mean-distance or doubled-radius"
        )
    if method not in _METHODS:
        raise InputError(f"unknown method {method!r}: choose one of {', '.join(_METHODS)}")
    return method


def _flat(samples: ArrayLike) -> FloatArray:
    array = np.asarray(samples, dtype=np.float64)
    if array.ndim < 2 or len(array) < 2:
        raise InputError(f"samples need shape (n, features, ...) with n ≥ 2, got {array.shape}")
    if len(array) > MOST_SAMPLES:
        raise InputError(
            f"{len(array)} samples are more than the {MOST_SAMPLES} that can be compared pairwise; "
            "pass a random subset, for which the bound holds just as well"
        )
    require_finite(array, "samples")
    return array.reshape(len(array), -1)


def _radii(eta: ArrayLike, count: int) -> FloatArray:
    """One radius per sample."""
    radii = np.asarray(eta, dtype=np.float64)
    if radii.ndim == 0:
        return np.full(count, require_not_negative("eta", float(radii)))
    if radii.shape != (count,):
        raise InputError(f"eta must be one number or one per sample ({count}), got {radii.shape}")
    require_finite(radii, "eta")
    require_not_negative("eta", float(radii.min()))
    return radii


def _squared_distances(points: FloatArray) -> FloatArray:
    """Pairwise squared distances (n, n), rounded down rather than up."""
    with np.errstate(over="ignore", invalid="ignore"):
        centred = points - points.mean(axis=0)
        norms = np.einsum("ij,ij->i", centred, centred)
    # Twice a sum of two norms must stay finite: NaN counts as far, which would lower kappa.
    if not float(norms.max()) < np.finfo(np.float64).max / 8:
        raise InputError(
            "the records' values are too large to square: divide them and eta by a common factor"
        )
    squared = norms[:, None] + norms[None, :] - 2.0 * (centred @ centred.T)
    # Subtract what rounding may have added: these are differences of large numbers.
    unit = 2.0 * (points.shape[1] + 4) * np.finfo(np.float64).eps
    error = unit * (norms[:, None] + norms[None, :])
    squared = np.asarray(np.maximum(squared - error, 0.0), dtype=np.float64)
    np.fill_diagonal(squared, 0.0)
    return squared


def _distance_table(distances: ArrayLike) -> FloatArray:
    table = np.asarray(distances, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] != table.shape[1] or len(table) < 2:
        raise InputError(f"distances must have shape (n, n) with n ≥ 2, got {table.shape}")
    require_finite(table, "distances")
    if (table < 0.0).any() or np.diagonal(table).any() or not np.allclose(table, table.T):
        raise InputError("distances must be symmetric, at least 0, and 0 on the diagonal")
    return table


def _most_by_mean_distance(squared: FloatArray, radii: FloatArray) -> int:
    """The largest k for which the k smallest values of s - 2kη² add up to at most 0."""
    near = _near(np.sqrt(squared), radii)
    nearest = np.sort(np.where(near, squared, np.inf), axis=1)
    sizes = np.arange(1, len(squared) + 1)
    # Column k - 1 is about each sample itself (distance 0) and its k - 1 nearest.
    allowed = 2.0 * (1.0 + _SLACK) * np.outer(radii**2, sizes)
    excess = np.sort(np.cumsum(nearest, axis=1) - allowed, axis=0)
    fitting = sizes[np.diagonal(np.cumsum(excess, axis=0)) <= 0.0]
    return min(int(fitting[-1]), _most_by_doubled_radius(np.sqrt(squared), radii))


def _near(distances: FloatArray, radii: FloatArray) -> NDArray[np.bool_]:
    """Pairs of samples on which one guess could succeed, (n, n): those within η + η′."""
    return distances <= (radii[:, None] + radii[None, :]) * (1.0 + _SLACK)


def _most_by_doubled_radius(distances: FloatArray, radii: FloatArray) -> int:
    """The largest k such that some samples all have k - 1 neighbours among themselves."""
    near = _near(distances, radii)
    degrees = near.sum(axis=1)
    alive = np.ones(len(near), dtype=bool)
    most = 1
    for _ in range(len(near)):
        degree = np.where(alive, degrees, np.iinfo(degrees.dtype).max)
        weakest = int(np.argmin(degree))
        most = max(most, int(degree[weakest]))
        alive[weakest] = False
        degrees = degrees - near[:, weakest]
    return most
