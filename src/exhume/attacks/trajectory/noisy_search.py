"""One release with noise: the most probable record over labels and starts."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from torch import Tensor

from exhume.attacks.trajectory.noisy import (
    Posterior,
    explains,
    most_probable,
    posterior_variance,
)
from exhume.attacks.trajectory.prior import Prior, pool_prior
from exhume.attacks.trajectory.search import Search, spread
from exhume.errors import InputError
from exhume.knowledge import Knowledge
from exhume.reconstruction import Reconstruction, Status

_LABELS = 4
_SURE = 0.5
"""An error below this share of the pool's spread says something about the record itself."""


class NoisySearch:
    """Fits release and prior together, for the labels with the best evidence."""

    def __init__(self, search: Search, noise: Tensor, prior: Prior | None) -> None:
        self.search, self.noise = search, noise
        self.prior = _pool_prior(search.knowledge) if prior is None else prior

    def run(self) -> list[Posterior]:
        """Return what each label's fit came to, the most probable first."""
        found: dict[int, Posterior] = {}
        entries = self.search.entries
        for start, _ in self.search.starts():
            label = int(start[entries:].argmax())
            sharp = bool(start[entries:].max() > 0.99) or self.search.outputs == 1
            if not sharp or label in found:
                continue
            found[label] = self._fit(start, 5)
            if len(found) == _LABELS or self.search.outputs == 1:
                break
        best = min(found, key=lambda label: found[label].cost)
        found[best] = self._fit(found[best].record, 8)
        return sorted(found.values(), key=lambda one: one.cost)

    def _fit(self, start: Tensor, iterations: int) -> Posterior:
        return most_probable(
            self.search.problem, self.prior, self.noise, start, iterations=iterations
        )

    def answer(self, rng: np.random.Generator) -> Reconstruction:
        """Return the candidates, one a label tried, the most probable first."""
        ranked = self.run()
        problem, entries = self.search.problem, self.search.entries
        own = posterior_variance(problem, self.prior, self.noise, ranked[0].record, rng)
        ranked[0] = best = replace(ranked[0], variance=own)
        shape = self.search.knowledge.record_shape
        samples = np.stack([one.record[:entries].numpy().reshape(shape) for one in ranked])
        costs = np.array([one.cost for one in ranked])
        weights = np.exp(-np.clip(costs - costs[0], 0.0, 700.0))
        status = self._status(best)
        return Reconstruction(
            samples,
            status,
            labels=np.concatenate([self.search.label(one.record) for one in ranked]),
            confidence=weights / weights.sum(),
            error_estimate=np.sqrt([one.variance for one in ranked]),
            message="" if status is Status.CONVERGED else _why(best, status),
            stats={
                "misfit": best.misfit,
                "noise_share": float(self.noise.norm()) / self.search.problem.scale,
                "iterations": sum(one.iterations for one in ranked),
                "labels_tried": len(ranked),
                "amplification": self.search.problem.path(best.record).amplification(rng),
            },
        )

    def _status(self, best: Posterior) -> Status:
        if not explains(best, len(self.noise)):
            return Status.NOT_CONVERGED
        sure = math.sqrt(best.variance) < _SURE * spread(self.search.knowledge)
        return Status.CONVERGED if sure else Status.APPROXIMATE


def _why(best: Posterior, status: Status) -> str:
    if status is Status.APPROXIMATE:
        return "the release's noise leaves the record open within about its prior"
    return f"the residual is {best.misfit:.3g} times what the release's noise would leave"


def _pool_prior(knowledge: Knowledge) -> Prior:
    pool = knowledge.pool()
    if len(pool) < 2:
        raise InputError(f"a prior needs at least 2 known records, there are {len(pool)}")
    return pool_prior(pool.reshape(len(pool), -1))
