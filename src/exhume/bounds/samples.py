"""κ from samples of the prior, soundly: with a stated confidence, never too small.

Why not simply count the samples within η of each sample? Because the best guess need not be a
sample: among points spread over a sphere of radius η no two may be within η of each other, while
its centre is within η of them all. Such a count *under*estimates κ, and a ceiling computed from it
can be beaten. It can't be had here.

What is done instead. Let B be a ball of radius η whose mass m is as close to κ as we please. B is a
fixed set, it does not depend on the samples, so the number N of the n samples that fall into it is
Binomial(n, m), and by Clopper and Pearson m ≤ U(N) with the confidence asked for, U being
increasing. N isn't seen, because B isn't known, but N ≤ K, the largest number of samples that *any*
ball of radius η holds; hence m ≤ U(K), and κ ≤ U(K) as m tends to κ. There is nothing to pay for
having looked at many centres: the confidence is spent on B alone. That none of the samples falls
into B is covered, too (N = 0 ≤ K).

Where what counts as success depends on the record, η is a function η(z), fixed before the samples
are drawn, and B the set of records z that lie within η(z) of a guess: again a fixed set, and both
bounds below hold with each sample's own η.

K itself would take a search over all centres; two upper bounds on it are enough.

- ``doubled-radius``, any metric: samples that one guess succeeds on are within η + η′ ≤ 2η of each
  other, so K is at most the largest number of such neighbours of a sample (itself included).
  Better: k samples that are all neighbours survive when samples with fewer than k - 1 neighbours
  are struck out again and again, so K is at most the largest k for which any survive.
- ``mean-distance``, Euclidean distance, far smaller in high dimension: if one guess succeeds on
  k samples, the squared distances over all ordered pairs of them sum to 2k times their squared
  distances from their mean, which are at most those from the guess: to at most 2k·Ση². So if s is
  the sum of a sample's k - 1 smallest squared distances, the k smallest values of s - 2kη² don't
  add up to more than 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exhume.arrays import FloatArray, require_finite
from exhume.bounds.checks import require_not_negative
from exhume.errors import InputError

_METHODS = ("mean-distance", "doubled-radius")
MOST_SAMPLES = 8000
"""More would need a gigabyte for their pairwise distances."""
_SLACK = 1e-9
"""Relative room given to computed distances, so that rounding never strikes out a neighbour."""


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

    ``samples`` has shape (n, *record shape), n ≥ 2; ``eta`` is a Euclidean distance (for a
    threshold on the mean squared error of d numbers pass √(d·threshold)), one for all or one a
    sample: η(z), where what counts as success depends on the record but not on the other samples.
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
    is one number or one a sample. Method ``doubled-radius`` of the module's text.
    """
    table = _distance_table(distances)
    most = _most_by_doubled_radius(table, _radii(eta, len(table)))
    return _estimate(most, len(table), confidence, "doubled-radius")


def kappa_of_pool(pool: ArrayLike, *, eta: ArrayLike, method: str = "mean-distance") -> float:
    """An upper bound on κ(η) where the prior *is* the pool, each of its records equally likely.

    ``pool`` has shape (n, *record shape); a guess may lie anywhere; Euclidean distance, ``eta`` one
    number or one a record. No confidence is involved: nothing is estimated.

    >>> kappa_of_pool([[0.0], [1.0], [5.0], [9.0]], eta=0.5)
    0.5
    """
    squared = _squared_distances(_flat(pool))
    radii = _radii(eta, len(squared))
    if _known(method) == "mean-distance":
        return _most_by_mean_distance(squared, radii) / len(squared)
    return _most_by_doubled_radius(np.sqrt(squared), radii) / len(squared)


def clopper_pearson_upper(successes: int, trials: int, confidence: float) -> float:
    """The upper end of the one-sided exact interval for a probability (Clopper and Pearson 1934).

    >>> round(clopper_pearson_upper(0, 10, 0.95), 4)
    0.2589
    """
    from scipy.special import betaincinv

    if not 0.0 < confidence < 1.0:
        raise InputError(f"confidence must be strictly between 0 and 1, got {confidence:g}")
    if successes >= trials:
        return 1.0
    return float(betaincinv(successes + 1, trials - successes, confidence))


def _estimate(most: int, samples: int, confidence: float, method: str) -> KappaEstimate:
    kappa = clopper_pearson_upper(most, samples, confidence)
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
    """One radius a sample."""
    radii = np.asarray(eta, dtype=np.float64)
    if radii.ndim == 0:
        return np.full(count, require_not_negative("eta", float(radii)))
    if radii.shape != (count,):
        raise InputError(f"eta must be one number or one a sample ({count}), got {radii.shape}")
    require_finite(radii, "eta")
    require_not_negative("eta", float(radii.min()))
    return radii


def _squared_distances(points: FloatArray) -> FloatArray:
    """Pairwise squared distances (n, n), rounded down rather than up."""
    centred = points - points.mean(axis=0)
    norms = np.einsum("ij,ij->i", centred, centred)
    squared = norms[:, None] + norms[None, :] - 2.0 * (centred @ centred.T)
    # Differences of large numbers: what rounding may have added is taken off again.
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
    """Which samples one guess could succeed on together, (n, n): those within η + η′."""
    return distances <= (radii[:, None] + radii[None, :]) * (1.0 + _SLACK)


def _most_by_doubled_radius(distances: FloatArray, radii: FloatArray) -> int:
    """The largest k such that some samples all keep k - 1 neighbours among themselves."""
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
