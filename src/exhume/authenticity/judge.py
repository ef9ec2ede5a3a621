"""A score for candidates without the training set, learned from networks of one's own.

An adversary can train networks on records of its own, attack them, and see which candidates were
real there. A judge learns from that; ``calibration`` measures it where it never looked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.authenticity.evidence import NAMES, Evidence
from exhume.errors import InputError


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


def in_turn(evidence: Sequence[Evidence], real: Sequence[Array]) -> list[FloatArray]:
    """Return each network's scores (k,) by a judge that learned from all the others.

    So every network teaches and every network measures, and none is measured by what it taught.
    """
    if len(evidence) < 2:
        raise InputError(f"at least 2 networks are needed, got {len(evidence)}")
    found = []
    for place, one in enumerate(evidence):
        others = [i for i in range(len(evidence)) if i != place]
        judge = learn([evidence[i] for i in others], [real[i] for i in others])
        found.append(judge.score(one))
    return found
