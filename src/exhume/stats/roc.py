"""Receiver operating characteristics of scores: the curve, its area, and rates at a threshold.

Scores may be clustered: several candidates stand for one picture, several pictures come from one
network. Each picture then has one vote, which its candidates share, and pictures count less if
networks differ more than chance explains. Rates hold for pictures, not for candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from exhume.protocol.arrays import Array, FloatArray, frozen
from exhume.protocol.errors import InputError
from exhume.stats.interval import LEVEL, Interval
from exhume.stats.means import bounded_mean_interval, jackknife_error, student_quantile


@dataclass(frozen=True, eq=False)
class Grouped:
    """Scores (n,), each of a candidate that stands for ``picture`` (n,) of ``network`` (n,)."""

    scores: FloatArray
    picture: NDArray[np.int64]
    network: NDArray[np.int64]

    def __post_init__(self) -> None:
        object.__setattr__(self, "scores", frozen(self.scores, dtype=np.float64))
        for name in ("picture", "network"):
            object.__setattr__(self, name, frozen(getattr(self, name), dtype=np.int64))
            if getattr(self, name).shape != self.scores.shape or self.scores.ndim != 1:
                raise InputError(
                    f"scores of shape {self.scores.shape} need as many entries of {name}, "
                    f"got {getattr(self, name).shape}"
                )

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def pictures(self) -> int:
        """The number of pictures, over all networks."""
        return len(self._kinds[0])

    @property
    def networks(self) -> int:
        """The number of networks."""
        return len(np.unique(self.network))

    @cached_property
    def weights(self) -> FloatArray:
        """The weight of each score (n,): those of a picture add up to 1."""
        _, place, counts = self._kinds
        return np.asarray(1.0 / counts[place])

    def only(self, wanted: Array) -> Grouped:
        """Return the scores that ``wanted`` (n,) marks."""
        return Grouped(self.scores[wanted], self.picture[wanted], self.network[wanted])

    def reaching(self, level: float) -> int:
        """Return how many pictures have a candidate with a score of at least ``level``."""
        _, place, _ = self._kinds
        return len(np.unique(place[self.scores >= level]))

    def share(self, level: float, *, below: bool = False, confidence: float = LEVEL) -> Interval:
        """Return the share of a picture's candidates that reach ``level``, averaged over pictures.

        ``below`` asks for those that stay below. The interval is that of a mean of independent
        numbers in [0, 1], one per picture (Hoeffding 1963, Theorem 1). If networks differ more than
        their pictures do, the effective number of pictures is smaller.
        """
        kinds, place, counts = self._kinds
        hit = (self.scores < level) if below else (self.scores >= level)
        shares = np.bincount(place, weights=hit, minlength=len(kinds)) / np.maximum(1, counts)
        if not len(shares):
            return Interval(float("nan"), 0.0, 1.0, confidence)
        effective = len(shares) / _design_effect(shares, kinds[:, 0])
        return bounded_mean_interval(float(shares.mean()), effective, confidence=confidence)

    def passing(self, levels: FloatArray) -> FloatArray:
        """Return the share of the pictures' votes at each of ``levels`` (k,) or above."""
        total = max(1.0, float(self.weights.sum()))
        return np.array([self.weights[self.scores >= level].sum() for level in levels]) / total

    @cached_property
    def _kinds(self) -> tuple[Array, Array, Array]:
        """Return the (network, picture) pairs, the pair of each score, and how many each has."""
        pairs = np.column_stack([self.network, self.picture])
        kinds, place, counts = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
        return kinds, place.reshape(-1), counts


def independent(scores: FloatArray) -> Grouped:
    """Return scores that are independent of each other: one picture each, of one network."""
    scores = np.asarray(scores, dtype=np.float64)
    return Grouped(scores, np.arange(len(scores)), np.zeros(len(scores), dtype=np.int64))


def joined(parts: Sequence[Grouped]) -> Grouped:
    """Return the scores of several networks together."""
    return Grouped(
        *(
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("scores", "picture", "network")
        )
    )


def roc_curve(real: Grouped, other: Grouped) -> tuple[FloatArray, FloatArray]:
    """Return the false and true positive rates, from the highest threshold down."""
    levels = np.unique(np.concatenate([real.scores, other.scores]))[::-1]
    return other.passing(levels), real.passing(levels)


def roc_area(
    real: Grouped | FloatArray, other: Grouped | FloatArray, *, confidence: float = LEVEL
) -> Interval:
    """Return the probability that a score of ``real`` exceeds one of ``other``; a tie counts half.

    Plain arrays are independent scores. Their interval holds for any distribution of scores: a
    two-sample U statistic is an average of means of min(n, m) independent numbers in [0, 1] and
    keeps their Chernoff bound (Hoeffding 1963, §5 with Theorem 1). It is wide, but never too
    narrow. Without scores on one side it is [0, 1]. With several networks the interval also covers
    Student's around a jackknife that leaves out one network at a time, which assumes nothing about
    the pictures of one network. (With two networks, the interval contains almost everything.)

    >>> found = roc_area(np.arange(50.0), np.arange(50.0) - 50)
    >>> found.estimate, round(found.low, 3), found.high
    (1.0, 0.929, 1.0)
    """
    real, other = (s if isinstance(s, Grouped) else independent(s) for s in (real, other))
    if not len(real) or not len(other):
        return Interval(float("nan"), 0.0, 1.0, confidence)
    estimate = _area(real, other)
    pairs = min(real.pictures, other.pictures)
    inner = bounded_mean_interval(estimate, pairs, confidence=confidence)
    outer = _jackknifed(real, other, estimate, confidence)
    return Interval(estimate, min(inner.low, outer[0]), max(inner.high, outer[1]), confidence)


def _area(real: Grouped, other: Grouped) -> float:
    order = np.argsort(other.scores, kind="stable")
    ordered = other.scores[order]
    passed = np.concatenate([[0.0], np.cumsum(other.weights[order])])
    below = passed[np.searchsorted(ordered, real.scores, side="left")]
    through = passed[np.searchsorted(ordered, real.scores, side="right")]
    return float(np.average((below + through) / 2, weights=real.weights) / passed[-1])


def _jackknifed(
    real: Grouped, other: Grouped, estimate: float, confidence: float
) -> tuple[float, float]:
    names = np.unique(np.concatenate([real.network, other.network]))
    if len(names) < 2:
        return estimate, estimate
    left = [(real.only(real.network != n), other.only(other.network != n)) for n in names]
    kept = np.array([_area(a, b) for a, b in left if len(a) and len(b)])
    if len(kept) < len(names):
        # One network has all scores of one kind: without it there is nothing to compare.
        return 0.0, 1.0
    reach = student_quantile(confidence, len(names) - 1) * jackknife_error(kept)
    return max(0.0, estimate - reach), min(1.0, estimate + reach)


def _design_effect(shares: FloatArray, network: Array) -> float:
    """Return how many times larger a mean's variance is than that of independent pictures."""
    names = np.unique(network)
    count, gaps = len(shares), shares - shares.mean()
    alone = float(np.square(gaps).sum()) / max(1, count - 1) / count
    if len(names) < 2 or alone <= 0:
        return 1.0
    sums = np.array([gaps[network == name].sum() for name in names])
    together = len(names) / (len(names) - 1) * float(np.square(sums).sum()) / count**2
    return max(1.0, together / alone)
