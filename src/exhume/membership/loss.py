"""The loss on the challenge, against a threshold: the simplest membership test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from exhume.arrays import FloatArray
from exhume.defences.base import undefended
from exhume.errors import InputError
from exhume.knowledge import Knowledge
from exhume.membership.base import Judge, MembershipAttack, uninformed
from exhume.membership.candidates import Candidates
from exhume.membership.shadows import train_shadows
from exhume.membership.vectors import Layout
from exhume.reconstruction import Status
from exhume.records import Records
from exhume.release import Release, Weights
from exhume.training.model import Model


@dataclass(frozen=True)
class LossThreshold(MembershipAttack):
    """Calls the challenge a member where the model's loss on it is small.

    The threshold lies halfway between the mean losses of ``models`` shadow models trained with the
    challenge and as many without (Yeom et al. 2018; the statistic of Balle et al. 2022, Figure
    11). The score is the threshold minus the loss. It uses one number of the release, and is here
    to be beaten.
    """

    models: int = 16
    name: ClassVar[str] = "loss-threshold"

    def __post_init__(self) -> None:
        if self.models < 1:
            raise InputError(f"models must be at least 1 a candidate, got {self.models}")

    def accepts(self, knowledge: Knowledge, candidates: Candidates) -> str | None:
        """Ask for a model whose weights are released, and for the challenge's label."""
        reason = uninformed(knowledge)
        if reason is not None:
            return reason
        assert knowledge.training is not None
        if not isinstance(undefended(knowledge.training), Model):
            return "needs a model whose weights are released: its loss can't be computed otherwise"
        return None if candidates.challenge.y is not None else "needs the challenge's label"

    def _prepare(
        self, knowledge: Knowledge, candidates: Candidates, rng: np.random.Generator
    ) -> Judge:
        assert knowledge.training is not None
        model = undefended(knowledge.training)
        assert isinstance(model, Model)
        shadows = train_shadows(knowledge.training, knowledge, candidates, self.models, rng)
        means = [
            np.mean([loss(model, release, candidates.challenge) for release in releases])
            for releases in (shadows.challenge, shadows.alternative)
        ]
        return _Threshold(shadows.layout, model, candidates.challenge, float(np.mean(means)))


@dataclass(frozen=True, eq=False)
class _Threshold(Judge):
    layout: Layout
    model: Model
    challenge: Records
    threshold: float

    def _weigh(self, release: Release, rng: np.random.Generator) -> tuple[float, Status]:
        if self.layout.vector(release) is None:
            return 0.0, Status.REFUSED
        return self.threshold - loss(self.model, release, self.challenge), Status.CONVERGED


def loss(model: Model, release: Release, record: Records) -> float:
    """Return a released model's loss on one record: cross-entropy, or the squared error."""
    assert isinstance(release, Weights)
    scores = model.scores(release, record.x)
    if model.classes is None:
        return float(np.square(record.labels.astype(np.float64) - model.means(scores)[:, 0]).sum())
    return -float(_log_probabilities(model, scores)[0, _class_index(model, record)])


def _log_probabilities(model: Model, scores: FloatArray) -> FloatArray:
    from scipy.special import log_softmax

    # Two classes may have one score, that of the second against the first.
    if scores.shape[1] == 1:
        scores = np.hstack([np.zeros_like(scores), scores])
    return np.asarray(log_softmax(scores, axis=1))


def _class_index(model: Model, record: Records) -> int:
    matches = np.flatnonzero(np.asarray(model.classes) == record.labels[0])
    if not len(matches):
        raise InputError(f"label {record.labels[0]} is none of the model's {model.classes}")
    return int(matches[0])
