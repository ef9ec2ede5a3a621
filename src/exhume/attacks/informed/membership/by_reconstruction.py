"""Membership inference by reconstruction: chooses the candidate nearest to the answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from exhume.attacks.blind import column_scale
from exhume.attacks.informed.membership.base import (
    MembershipAttack,
    MembershipJudge,
    MembershipQuestion,
)
from exhume.protocol.arrays import FloatArray
from exhume.protocol.attack import Attack
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Status
from exhume.protocol.release import Release


@dataclass(frozen=True)
class ByReconstruction(MembershipAttack):
    """Runs any reconstruction ``attack`` and decides for the candidate nearest to its answer.

    Balle et al. 2022, §II-D: if the distance obeys the triangle inequality and the reconstruction
    error is less than half the distance between the candidates, the decision is right. The distance
    is root-mean-square, on plain values if their range is known, and otherwise in standard
    deviations of the pool's columns. The score is the distance from the reconstruction to the
    nearest alternative minus that to the challenge. The reconstruction knows only the candidates'
    label, if they all have the same.
    """

    attack: Attack
    name: ClassVar[str] = "by-reconstruction"

    def accepts(self, knowledge: Knowledge, candidates: MembershipQuestion) -> str | None:
        """Require alternatives: no reconstruction is near to an absent record."""
        if candidates.alternatives is None:
            return "a reconstruction cannot be nearest to an omitted record"
        return None

    def _prepare(
        self, knowledge: Knowledge, candidates: MembershipQuestion, rng: np.random.Generator
    ) -> MembershipJudge:
        labels = candidates.records.y
        if labels is not None and knowledge.labels is None and len(set(labels.tolist())) == 1:
            knowledge = replace(knowledge, labels=labels[:1])
        return _Nearest(self.attack, knowledge, candidates)


@dataclass(frozen=True, eq=False)
class _Nearest(MembershipJudge):
    attack: Attack
    knowledge: Knowledge
    candidates: MembershipQuestion

    def _weigh(self, release: Release, rng: np.random.Generator) -> tuple[float, Status]:
        found = self.attack.reconstruct(release, self.knowledge, rng=rng)
        if not len(found):
            return 0.0, found.status
        distances = self._distances(np.asarray(found.samples[0], dtype=np.float64))
        return float(distances[1:].min() - distances[0]), found.status

    def _distances(self, sample: FloatArray) -> FloatArray:
        """Return root-mean-square distances from the challenge, then from the alternatives."""
        from exhume.metrics import RMSE

        pool = self.knowledge.pool()
        scale = column_scale(pool, self.knowledge.value_range) if len(pool) else None
        records = self.candidates.records.x
        return RMSE(scale=scale)(records, np.broadcast_to(sample, records.shape))
