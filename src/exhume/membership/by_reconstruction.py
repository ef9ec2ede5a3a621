"""Reconstruction used as membership inference: the candidate nearest to what came out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from exhume.arrays import FloatArray
from exhume.attacks.base import Attack
from exhume.attacks.baseline import column_scale
from exhume.knowledge import Knowledge
from exhume.membership.base import Judge, MembershipAttack
from exhume.membership.candidates import Candidates
from exhume.reconstruction import Status
from exhume.release import Release


@dataclass(frozen=True)
class ByReconstruction(MembershipAttack):
    """Runs any reconstruction ``attack`` and decides for the candidate nearest to its answer.

    Balle et al. 2022, §II-D: where the distance obeys the triangle inequality and the
    reconstruction is off by less than half the distance between the candidates, the decision is
    right. Distance is root-mean-square, on the values as they are where their range is known and in
    standard deviations of the pool's columns elsewhere. The score is the distance from the
    reconstruction to the nearest alternative minus that to the challenge. The reconstruction is
    told of the candidates only the label, where all have the same.
    """

    attack: Attack
    name: ClassVar[str] = "by-reconstruction"

    def accepts(self, knowledge: Knowledge, candidates: Candidates) -> str | None:
        """Ask for alternatives: a reconstruction is near to something, never near to nothing."""
        if candidates.alternatives is None:
            return "a reconstruction can't be nearest to a record that was left out"
        return None

    def _prepare(
        self, knowledge: Knowledge, candidates: Candidates, rng: np.random.Generator
    ) -> Judge:
        labels = candidates.records.y
        if labels is not None and knowledge.labels is None and len(set(labels.tolist())) == 1:
            knowledge = replace(knowledge, labels=labels[:1])
        return _Nearest(self.attack, knowledge, candidates)


@dataclass(frozen=True, eq=False)
class _Nearest(Judge):
    attack: Attack
    knowledge: Knowledge
    candidates: Candidates

    def _weigh(self, release: Release, rng: np.random.Generator) -> tuple[float, Status]:
        found = self.attack.reconstruct(release, self.knowledge, rng=rng)
        if not len(found):
            return 0.0, found.status
        distances = self._distances(np.asarray(found.samples[0], dtype=np.float64))
        return float(distances[1:].min() - distances[0]), found.status

    def _distances(self, sample: FloatArray) -> FloatArray:
        """Root-mean-square distances from the challenge, then from the alternatives."""
        from exhume.metrics import RMSE

        pool = self.knowledge.pool()
        scale = column_scale(pool, self.knowledge.value_range) if len(pool) else None
        records = self.candidates.records.x
        return RMSE(scale=scale)(records, np.broadcast_to(sample, records.shape))
