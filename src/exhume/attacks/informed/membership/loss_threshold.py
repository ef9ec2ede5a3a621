"""A threshold on the loss of the challenge: the simplest membership test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from exhume.attacks.informed.membership.base import MembershipJudge, MembershipQuestion
from exhume.attacks.informed.membership.shadow_models import Shadows, ShadowTest
from exhume.protocol.arrays import FloatArray
from exhume.protocol.defence import undefended
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.reconstruction import Status
from exhume.protocol.records import Records
from exhume.protocol.release import Release, Weights
from exhume.shadows.release_vector import ReleaseVector
from exhume.training.model import Model


@dataclass(frozen=True)
class LossThreshold(ShadowTest):
    """Calls the challenge a member if the model's loss on it is small.

    The threshold lies halfway between the mean losses of ``models`` shadow models trained with the
    challenge and as many without (Yeom et al. 2018; the statistic of Balle et al. 2022, Figure
    11). The score is the threshold minus the loss. It uses a single number of the release and
    serves as a baseline.
    """

    models: int = 16
    name: ClassVar[str] = "loss-threshold"

    def accepts(self, knowledge: Knowledge, candidates: MembershipQuestion) -> str | None:
        """Require a model whose weights are released, and the challenge's label."""
        reason = super().accepts(knowledge, candidates)
        if reason is not None or knowledge.training is None:
            return reason
        model = undefended(knowledge.training)
        if isinstance(model, Model) and not model.answers:
            return "needs the architecture of the state dict that the loop returns (release.model)"
        if not isinstance(model, Model):
            return "needs a model whose weights are released: its loss can't be computed otherwise"
        return None if candidates.challenge.y is not None else "needs the challenge's label"

    def _fitted(
        self, training: Mechanism, candidates: MembershipQuestion, shadows: Shadows
    ) -> MembershipJudge:
        model = undefended(training)
        assert isinstance(model, Model)
        means = [
            np.mean([loss(model, release, candidates.challenge) for release in releases])
            for releases in (shadows.challenge, shadows.alternative)
        ]
        return _Threshold(shadows.layout, model, candidates.challenge, float(np.mean(means)))


@dataclass(frozen=True, eq=False)
class _Threshold(MembershipJudge):
    layout: ReleaseVector
    model: Model
    challenge: Records
    threshold: float

    def _weigh(self, release: Release, rng: np.random.Generator) -> tuple[float, Status]:
        if self.layout.mismatch(release) is not None:
            return 0.0, Status.REFUSED
        return self.threshold - loss(self.model, release, self.challenge), Status.CONVERGED


def loss(model: Model, release: Release, record: Records) -> float:
    """Return a released model's loss on one record: cross-entropy, or the squared error."""
    assert isinstance(release, Weights)
    scores = model.scores(release, record.x)
    if model.classes is None:
        return float(np.square(record.labels.astype(np.float64) - model.means(scores)[:, 0]).sum())
    return -float(_log_probabilities(scores)[0, _class_index(model, record)])


def _log_probabilities(scores: FloatArray) -> FloatArray:
    from scipy.special import log_softmax

    # Two classes may have one score, that of the second against the first.
    if scores.shape[1] == 1:
        scores = np.hstack([np.zeros_like(scores), scores])
    return np.asarray(log_softmax(scores, axis=1))


def _class_index(model: Model, record: Records) -> int:
    matches = np.flatnonzero(np.asarray(model.classes) == record.labels[0])
    if not len(matches):
        raise InputError(f"label {record.labels[0]} is not one of the model's {model.classes}")
    return int(matches[0])
