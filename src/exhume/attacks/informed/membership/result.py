"""The result of a membership game: rates, confidence intervals, and the ceiling."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from exhume.bounds.checks import require_probability
from exhume.bounds.membership import Against, PowerCeiling
from exhume.protocol.arrays import Array, frozen, require_finite
from exhume.protocol.errors import InputError
from exhume.stats.interval import Interval
from exhume.stats.proportions import Proportion, clopper_pearson
from exhume.stats.roc import roc_area


@dataclass(frozen=True)
class OperatingPoint:
    """A threshold on the scores, and both rates above it.

    The threshold was set on the trials without the challenge, so the interval of the true-positive
    rate is exact. ``false_positive_rate.high`` bounds the true false-positive rate. ``ceiling`` is
    the largest true-positive rate of any attack at the requested false-positive rate.
    """

    threshold: float
    true_positive_rate: Proportion
    false_positive_rate: Proportion
    ceiling: float | None


@dataclass(frozen=True, eq=False)
class MembershipResult:
    """Trials of Balle et al. 2022, Algorithm 2: secret bits, decisions and scores, each (trials,).

    ``members`` marks the trials in which the challenge was trained on. ``unanswered`` trials were
    decided by a coin, because the attack did not run or had no evidence. ``ceiling`` is None if no
    bound holds.
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
                f"one decision and one score per trial: got {self.members.shape}, "
                f"{self.decisions.shape} and {self.scores.shape}"
            )
        require_finite(self.scores, "scores")

    @property
    def trials(self) -> int:
        """The number of games played."""
        return len(self.members)

    @property
    def accuracy(self) -> Proportion:
        """The share of correct decisions, with its exact interval."""
        right = int((self.members == self.decisions).sum())
        return clopper_pearson(right, self.trials, confidence=self.confidence)

    @property
    def advantage(self) -> Interval:
        """True-positive minus false-positive rate, in [−1, 1], with an exact interval.

        With a fair secret bit, each decision is correct with probability (1 + advantage)/2, so the
        interval is that of a single proportion.
        """
        found = self.accuracy
        return found.interval.scaled(2.0, shift=-1.0)

    @property
    def true_positive_rate(self) -> Proportion:
        """The share of trials with the challenge in which it was recognised."""
        return self._share(self.decisions, members=True)

    @property
    def false_positive_rate(self) -> Proportion:
        """The share of trials without the challenge in which it was claimed."""
        return self._share(self.decisions, members=False)

    @property
    def auc(self) -> Interval:
        """The probability that a score with the challenge exceeds one without; ties count half."""
        return roc_area(
            self.scores[self.members], self.scores[~self.members], confidence=self.confidence
        )

    def at(self, false_positive_rate: float) -> OperatingPoint:
        """Return the lowest threshold with at most this false-positive rate."""
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
        """The largest advantage of any attack; None if no bound holds."""
        return None if self.ceiling is None else self.ceiling.advantage

    def epsilon_at_least(self, *, delta: float = 0.0) -> float:
        """Return the smallest ε ≥ 0 of (ε, δ)-DP that these decisions are compatible with.

        It follows from TPR ≤ e^ε FPR + δ and 1 − FPR ≤ e^ε (1 − TPR) + δ at the ends of both
        intervals. A mechanism with a smaller ε is thus refuted with the result's confidence. ε is
        for the change that the game tests: replacing a record, or leaving it out.
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
