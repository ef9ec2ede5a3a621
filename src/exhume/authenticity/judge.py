"""A verdict on candidates without the training set, and how often it is wrong.

An adversary can train networks on records of its own, attack them, and see which candidates were
real there. A judge learns from that; its error rate is then measured where it never looked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.authenticity.evidence import NAMES, Evidence
from exhume.errors import InputError
from exhume.membership.auc import auc_interval
from exhume.metrics.confidence import Interval, Proportion, clopper_pearson, clopper_pearson_high


@dataclass(frozen=True, eq=False)
class Judge:
    """A logistic score of the evidence: ``weights`` (6,) on standardised columns."""

    mean: FloatArray
    scale: FloatArray
    weights: FloatArray
    offset: float

    def score(self, evidence: Evidence) -> FloatArray:
        """Return the authenticity (k,) in [0, 1]: the judge's chance that a candidate is real."""
        from scipy.special import expit

        standard = (evidence.values - self.mean) / self.scale
        return np.asarray(expit(standard @ self.weights + self.offset))

    def describe(self) -> str:
        """Name the columns by weight, largest first."""
        order = np.argsort(-np.abs(self.weights))
        return ", ".join(f"{NAMES[i]} {self.weights[i]:+.2f}" for i in order)


def learn(evidence: Sequence[Evidence], real: Sequence[Array]) -> Judge:
    """Return a judge from attacks on networks of one's own; ``real`` (k,) a network, bool."""
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
    return Judge(mean, scale, np.asarray(model.coef_[0]), float(model.intercept_[0]))


@dataclass(frozen=True, eq=False)
class Calibration:
    """How well scores tell real from not: the curve, its area, and a threshold that holds.

    ``false_rate`` and ``true_rate`` are the ROC's points, from the highest threshold down.
    ``threshold`` is the lowest one whose false-positive rate is at most ``allowed`` with 95 %
    confidence (Clopper–Pearson, one-sided), None where there is none.
    """

    area: Interval
    false_rate: FloatArray
    true_rate: FloatArray
    allowed: float
    threshold: float | None
    caught: Proportion
    alarms: Proportion

    @property
    def tells(self) -> bool:
        """Whether anything can be told: the area's interval lies above ½ and a threshold holds."""
        return self.area.low > 0.5 and self.threshold is not None and self.caught.successes > 0

    def describe(self) -> str:
        """Say it in a sentence."""
        area = f"AUC {self.area.estimate:.2f} [{self.area.low:.2f}, {self.area.high:.2f}]"
        if not self.tells:
            why = "" if self.area.low > 0.5 else ", whose interval holds chance"
            if self.threshold is None or not self.caught.successes:
                why += f"; no threshold finds any at a false-positive rate below {self.allowed:g}"
            return f"cannot be told: {area}{why}"
        return (
            f"{area}; at a false-positive rate of {self.alarms.rate:.3f} "
            f"[{self.alarms.low:.3f}, {self.alarms.high:.3f}] "
            f"{self.caught.successes} of {self.caught.trials} real ones are recognised"
        )


def calibrate(real: FloatArray, other: FloatArray, *, allowed: float = 0.1) -> Calibration:
    """Measure scores of ``real`` (n,) and ``other`` (m,) things, none of which was learned from.

    >>> calibrate(np.linspace(0.6, 1, 80), np.linspace(0, 0.5, 80)).tells
    True
    >>> calibrate(np.linspace(0, 1, 80), np.linspace(0, 1, 80)).describe()[:15]
    'cannot be told:'
    """
    if not 0 < allowed < 1:
        raise InputError(f"allowed must lie strictly between 0 and 1, got {allowed}")
    real, other = np.asarray(real, dtype=np.float64), np.asarray(other, dtype=np.float64)
    levels = np.unique(np.concatenate([real, other]))[::-1]
    alarms = np.array([(other >= level).sum() for level in levels], dtype=np.intp)
    caught = np.array([(real >= level).sum() for level in levels], dtype=np.intp)
    holds = [
        level
        for level, count in zip(levels, alarms, strict=True)
        if clopper_pearson_high(int(count), len(other)) <= allowed
    ]
    threshold = float(min(holds)) if holds else None
    level = np.inf if threshold is None else threshold
    return Calibration(
        auc_interval(real, other),
        alarms / max(1, len(other)),
        caught / max(1, len(real)),
        allowed,
        threshold,
        clopper_pearson(int((real >= level).sum()), len(real)),
        clopper_pearson(int((other >= level).sum()), len(other)),
    )
