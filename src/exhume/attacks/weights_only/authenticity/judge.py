"""Scores for candidates without the training set, learned from the adversary's own networks.

An adversary can train networks on its own records, attack them, and see which candidates were real
there. A judge learns from that. ``calibrate`` measures it on networks it did not learn from: how
often its scores are wrong, and what they allow one to say about a candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from exhume.attacks.weights_only.authenticity.evidence import NAMES, AuthenticityEvidence
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.errors import InputError
from exhume.stats.interval import Interval
from exhume.stats.roc import Grouped, independent, roc_area, roc_curve


@dataclass(frozen=True, eq=False)
class AuthenticityJudge:
    """A logistic score of the evidence, with ``weights`` (6,) on standardised columns."""

    mean: FloatArray
    scale: FloatArray
    weights: FloatArray
    offset: float

    def score(self, evidence: AuthenticityEvidence) -> FloatArray:
        """Return the authenticity (k,) in [0, 1]: the judge's probability that each is real."""
        from scipy.special import expit

        standard = (evidence.values - self.mean) / self.scale
        return np.asarray(expit(standard @ self.weights + self.offset))

    def describe(self) -> str:
        """Return the names of the columns, largest weight first."""
        order = np.argsort(-np.abs(self.weights))
        return ", ".join(f"{NAMES[i]} {self.weights[i]:+.2f}" for i in order)


def learn(evidence: Sequence[AuthenticityEvidence], real: Sequence[Array]) -> AuthenticityJudge:
    """Return a judge learned from attacks on own networks; ``real`` holds (k,) bool per network."""
    from sklearn.linear_model import LogisticRegression

    values = np.concatenate([one.values for one in evidence])
    truth = np.concatenate([np.asarray(one, dtype=bool) for one in real])
    if len(values) != len(truth):
        raise InputError(f"{len(values)} rows of evidence need as many answers, got {len(truth)}")
    if truth.all() or not truth.any():
        raise InputError("a judge needs real and invented candidates to learn from; one kind given")
    mean, scale = values.mean(axis=0), values.std(axis=0)
    scale = np.where(scale > 1e-9, scale, 1.0)
    model = LogisticRegression(C=1.0).fit((values - mean) / scale, truth)
    return AuthenticityJudge(mean, scale, np.asarray(model.coef_[0]), float(model.intercept_[0]))


def in_turn(evidence: Sequence[AuthenticityEvidence], real: Sequence[Array]) -> list[FloatArray]:
    """Return each network's scores (k,) by a judge that learned from all the other networks.

    Every network is used for learning and for measuring, but none is measured by its own judge.
    """
    if len(evidence) < 2:
        raise InputError(f"at least 2 networks are needed, got {len(evidence)}")
    found = []
    for place, one in enumerate(evidence):
        others = [i for i in range(len(evidence)) if i != place]
        judge = learn([evidence[i] for i in others], [real[i] for i in others])
        found.append(judge.score(one))
    return found


_ONE_SIDED = 0.9
"""A two-sided interval of this confidence has 95 % on either side."""


class AuthenticityVerdict(Enum):
    """The verdict on a candidate. The value is the word that the report uses."""

    REAL = "real"
    INVENTED = "invented"
    UNTOLD = "undecided"


@dataclass(frozen=True, eq=False)
class Calibration:
    """How well scores separate real from invented candidates, counted in pictures.

    ``threshold`` is the lowest score with a false-positive rate of at most ``allowed`` (95 %
    confidence); from there on the verdict is "real". At most that share of the real ones lies below
    ``floor``; there the verdict is "invented". Either is None if no such score exists. Scores in
    between are undecided.
    """

    real: Grouped
    other: Grouped
    area: Interval
    allowed: float
    threshold: float | None
    floor: float | None

    @property
    def tells(self) -> bool:
        """Whether verdicts are possible: the AUC's interval is above ½ and a threshold exists."""
        return self.area.low > 0.5 and self.threshold is not None and self.recognised > 0

    @property
    def recognised(self) -> int:
        """The number of real pictures that have a candidate at the threshold or above."""
        return 0 if self.threshold is None else self.real.reaching(self.threshold)

    @property
    def alarms(self) -> Interval:
        """The false-positive rate at the threshold; only its upper limit has 95 % confidence."""
        level = np.inf if self.threshold is None else self.threshold
        return self.other.share(level, confidence=_ONE_SIDED)

    def false_positives(self, score: float) -> Interval:
        """Return the rate at which a picture's inventions score at least ``score``."""
        return self.other.share(score)

    def verdict(self, score: float) -> AuthenticityVerdict:
        """Return the verdict on a candidate with this score."""
        if not self.tells or self.threshold is None:
            return AuthenticityVerdict.UNTOLD
        if score >= self.threshold:
            return AuthenticityVerdict.REAL
        floor = -np.inf if self.floor is None else self.floor
        return AuthenticityVerdict.INVENTED if score < floor else AuthenticityVerdict.UNTOLD

    def curve(self) -> tuple[FloatArray, FloatArray]:
        """Return the ROC's false and true positive rates, from the highest threshold down."""
        return roc_curve(self.real, self.other)

    def describe(self) -> str:
        """Return the calibration as one sentence."""
        sure = f"AUC {self.area.estimate:.2f} [{self.area.low:.2f}, {self.area.high:.2f}]"
        if not self.tells:
            why = "" if self.area.low > 0.5 else ", whose interval includes chance"
            if self.threshold is None or not self.recognised:
                why += f"; no threshold finds any at a false-positive rate below {self.allowed:g}"
            return f"undecided: {sure}{why}"
        return (
            f"{sure}; at a false-positive rate of {self.alarms.estimate:.3f} (at most "
            f"{self.alarms.high:.3f}, with 95 % confidence) {self.recognised} of "
            f"{self.real.pictures} real ones are recognised"
        )


def calibrate(
    real: Grouped | FloatArray, other: Grouped | FloatArray, *, allowed: float = 0.1
) -> Calibration:
    """Measure the scores of ``real`` and ``other`` candidates, none of which was learned from.

    Plain arrays stand for independent scores. Candidates are not independent: use ``Grouped`` to
    name the picture and network of each, or the intervals are too narrow.

    >>> calibrate(np.linspace(0.6, 1, 80), np.linspace(0, 0.5, 80)).tells
    True
    >>> calibrate(np.linspace(0, 1, 80), np.linspace(0, 1, 80)).describe()[:10]
    'undecided:'
    """
    if not 0 < allowed < 1:
        raise InputError(f"allowed must lie strictly between 0 and 1, got {allowed}")
    real, other = (
        side if isinstance(side, Grouped) else independent(side) for side in (real, other)
    )
    levels = np.unique(np.concatenate([real.scores, other.scores]))
    threshold = _lowest(other, levels, allowed)
    floor = _highest(real, levels, allowed)
    if floor is not None and threshold is not None:
        floor = min(floor, threshold)
    return Calibration(real, other, roc_area(real, other), allowed, threshold, floor)


def _lowest(other: Grouped, levels: FloatArray, allowed: float) -> float | None:
    """Return the lowest level that few enough inventions reach.

    The levels are tested in descending order up to the first failure, which keeps the confidence of
    a single test.
    """
    found = None
    for level in levels[::-1]:
        if other.share(level, confidence=_ONE_SIDED).high > allowed:
            break
        found = float(level)
    return found


def _highest(real: Grouped, levels: FloatArray, allowed: float) -> float | None:
    """Return the highest level that few enough real candidates stay below."""
    found = None
    for level in levels:
        if real.share(level, below=True, confidence=_ONE_SIDED).high > allowed:
            break
        found = float(level)
    return found
