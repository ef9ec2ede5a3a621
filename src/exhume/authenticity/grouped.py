"""Scores that hang together: several candidates stand for a picture, pictures for a network.

Each picture has one vote, which its candidates share, and networks that differ more than chance
would have it count for less. What is said of a rate then holds for pictures, not for candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from exhume.arrays import Array, FloatArray, frozen
from exhume.errors import InputError
from exhume.membership.auc import auc_interval, mean_interval
from exhume.metrics.confidence import Interval

_LEVEL = 0.95


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
        """How many pictures of all networks there are."""
        return len(self._kinds[0])

    @property
    def networks(self) -> int:
        """How many networks there are."""
        return len(np.unique(self.network))

    @cached_property
    def weights(self) -> FloatArray:
        """What each score counts (n,): a picture's add up to 1."""
        _, place, counts = self._kinds
        return np.asarray(1.0 / counts[place])

    def only(self, wanted: Array) -> Grouped:
        """Return those that ``wanted`` (n,) marks."""
        return Grouped(self.scores[wanted], self.picture[wanted], self.network[wanted])

    def reaching(self, level: float) -> int:
        """Return how many pictures have a candidate that reaches ``level``."""
        _, place, _ = self._kinds
        return len(np.unique(place[self.scores >= level]))

    def share(self, level: float, *, below: bool = False, confidence: float = _LEVEL) -> Interval:
        """Return the share of a picture's candidates that reach ``level``, on average over all.

        ``below`` asks for those that don't. The interval is that of a mean of independent numbers
        in [0, 1] (Hoeffding 1963, Theorem 1), one a picture; where networks differ more than their
        pictures do, there are as many as explain that.
        """
        kinds, place, counts = self._kinds
        hit = (self.scores < level) if below else (self.scores >= level)
        shares = np.bincount(place, weights=hit, minlength=len(kinds)) / np.maximum(1, counts)
        if not len(shares):
            return Interval(float("nan"), 0.0, 1.0, confidence)
        worth = len(shares) / _design_effect(shares, kinds[:, 0])
        return mean_interval(float(shares.mean()), worth, confidence=confidence)

    @cached_property
    def _kinds(self) -> tuple[Array, Array, Array]:
        """Return each picture's (network, picture), each score's picture, and pictures' sizes."""
        pairs = np.column_stack([self.network, self.picture])
        kinds, place, counts = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
        return kinds, place.reshape(-1), counts


def each_its_own(scores: FloatArray) -> Grouped:
    """Return scores that have nothing in common with each other, of one network."""
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


def area(real: Grouped, other: Grouped, *, confidence: float = _LEVEL) -> Interval:
    """Return the chance that a real picture's score exceeds an invented one's, ties counting half.

    The interval holds both that of independent pictures and, where there are several networks,
    Student's around a jackknife that leaves out one network at a time: it makes no assumption about
    pictures of one network. (Two networks leave next to nothing of it.)
    """
    known = auc_interval(real.scores, other.scores, confidence=confidence)
    if not len(real) or not len(other):
        return known
    estimate = _area(real, other)
    pairs = min(real.pictures, other.pictures)
    inner = mean_interval(estimate, pairs, confidence=confidence)
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
    from scipy.special import stdtrit

    names = np.unique(np.concatenate([real.network, other.network]))
    left = [(real.only(real.network != n), other.only(other.network != n)) for n in names]
    kept = np.array([_area(a, b) for a, b in left if len(a) and len(b)])
    count = len(names)
    if count < 2:
        return estimate, estimate
    if len(kept) < count:
        # One network has all of a kind: without it there is nothing to compare.
        return 0.0, 1.0
    variance = (count - 1) / count * np.square(kept - kept.mean()).sum()
    reach = float(stdtrit(count - 1, (1 + confidence) / 2) * np.sqrt(variance))
    return max(0.0, estimate - reach), min(1.0, estimate + reach)


def _design_effect(shares: FloatArray, network: Array) -> float:
    """How many times the variance of a mean is larger than that of independent pictures."""
    names = np.unique(network)
    count, gaps = len(shares), shares - shares.mean()
    alone = float(np.square(gaps).sum()) / max(1, count - 1) / count
    if len(names) < 2 or alone <= 0:
        return 1.0
    sums = np.array([gaps[network == name].sum() for name in names])
    together = len(names) / (len(names) - 1) * float(np.square(sums).sum()) / count**2
    return max(1.0, together / alone)
