"""What a membership game ended in: how often, how surely, and against which ceiling."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from exhume.arrays import Array, frozen, require_finite
from exhume.bounds.checks import require_probability
from exhume.errors import InputError
from exhume.membership.auc import auc_interval
from exhume.membership.candidates import Against
from exhume.membership.ceiling import PowerCeiling
from exhume.metrics.confidence import Interval, Proportion, clopper_pearson


@dataclass(frozen=True)
class OperatingPoint:
    """A threshold on the scores, and both rates above it.

    The threshold was set on the trials without the challenge, so the interval of the true-positive
    rate is exact; ``false_positive_rate.high`` says how large the other may really be. ``ceiling``
    is the largest true-positive rate of any attack at the false-positive rate asked for.
    """

    threshold: float
    true_positive_rate: Proportion
    false_positive_rate: Proportion
    ceiling: float | None


@dataclass(frozen=True, eq=False)
class MembershipResult:
    """Trials of Balle et al. 2022, Algorithm 2: secret bits, decisions and scores, each (trials,).

    ``members`` tells in which trials the challenge was trained on. ``unanswered`` trials were
    decided by a coin, because the attack did not run or had no evidence either way. ``ceiling`` is
    None where no bound holds.
    """

    attack: str
    against: Against
    members: Array
    decisions: Array
    scores: Array
    unanswered: int = 0
    ceiling: PowerCeiling | None = None
    confidence: float = 0.95

    def __post_init__(self) -> None:
        for name, kind in (("members", bool), ("decisions", bool), ("scores", np.float64)):
            object.__setattr__(self, name, frozen(getattr(self, name), dtype=kind))
        if not self.members.shape == self.decisions.shape == self.scores.shape:
            raise InputError(
                f"one decision and one score a trial: got {self.members.shape}, "
                f"{self.decisions.shape} and {self.scores.shape}"
            )
        require_finite(self.scores, "scores")

    @property
    def trials(self) -> int:
        """How often the game was played."""
        return len(self.members)

    @property
    def accuracy(self) -> Proportion:
        """The share of right decisions, with its exact interval."""
        right = int((self.members == self.decisions).sum())
        return clopper_pearson(right, self.trials, confidence=self.confidence)

    @property
    def advantage(self) -> Interval:
        """True-positive minus false-positive rate, in [−1, 1], with an exact interval.

        With a fair secret bit a decision is right with probability (1 + advantage)/2, trial by
        trial, so that the interval is that of a single proportion.
        """
        found = self.accuracy
        low, high = 2.0 * found.low - 1.0, 2.0 * found.high - 1.0
        return Interval(2.0 * found.rate - 1.0, low, high, self.confidence)

    @property
    def true_positive_rate(self) -> Proportion:
        """How often the challenge was recognised where it was trained on."""
        return self._share(self.decisions, members=True)

    @property
    def false_positive_rate(self) -> Proportion:
        """How often it was seen where it was not."""
        return self._share(self.decisions, members=False)

    @property
    def auc(self) -> Interval:
        """The chance that a score with the challenge exceeds one without, ties counting half."""
        return auc_interval(
            self.scores[self.members], self.scores[~self.members], confidence=self.confidence
        )

    def at(self, false_positive_rate: float) -> OperatingPoint:
        """Return the lowest threshold at which so small a share of false positives is left."""
        require_probability("false_positive_rate", false_positive_rate)
        others = np.sort(self.scores[~self.members])[::-1]
        allowed = int(np.floor(false_positive_rate * len(others) + 1e-9))
        threshold = float(others[allowed]) if allowed < len(others) else -np.inf
        above = self.scores > threshold
        limit = None
        if self.ceiling is not None:
            limit = self.ceiling.true_positive_rate(false_positive_rate)
        return OperatingPoint(
            threshold, self._share(above, members=True), self._share(above, members=False), limit
        )

    @property
    def advantage_ceiling(self) -> float | None:
        """The largest advantage of any attack; None where no bound holds."""
        return None if self.ceiling is None else self.ceiling.advantage

    def epsilon_at_least(self, *, delta: float = 0.0) -> float:
        """Return the smallest ε ≥ 0 of (ε, δ)-DP that these decisions are compatible with.

        From TPR ≤ e^ε FPR + δ and 1 − FPR ≤ e^ε (1 − TPR) + δ at the ends of both intervals, so
        that a mechanism that keeps a smaller ε is refuted with the result's confidence. ε is that
        of what the game tells apart: of replacing a record, or of leaving it out.
        """
        require_probability("delta", delta)
        true, false = self.true_positive_rate.low, self.false_positive_rate.high
        found = 0.0
        for inside, outside in ((true, false), (1.0 - false, 1.0 - true)):
            if inside > delta + outside:
                found = max(found, math.log((inside - delta) / outside))
        return found

    def describe(self) -> str:
        """Return one line: the advantage with its interval, and the ceiling."""
        found, limit = self.advantage, self.advantage_ceiling
        most = "no bound holds" if limit is None else f"at most {limit:.3f} for any attack"
        return (
            f"{self.attack}: advantage {found.estimate:.3f} [{found.low:.3f}, {found.high:.3f}] "
            f"in {self.trials} trials, {most}"
        )

    def _share(self, positive: Array, *, members: bool) -> Proportion:
        chosen = positive[self.members == members]
        return clopper_pearson(int(chosen.sum()), len(chosen), confidence=self.confidence)
