"""Trajectory inversion for any training that can be repeated, end to end.

For a release with noise, it finds the most probable record over labels and starts.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from torch import Tensor

from exhume.attacks.informed.trajectory.observation import observed_release
from exhume.attacks.informed.trajectory.one_target.gaussian_prior import TrajectoryPrior, pool_prior
from exhume.attacks.informed.trajectory.one_target.noise import (
    Posterior,
    explains,
    most_probable,
    noise_deviation,
    posterior_variance,
)
from exhume.attacks.informed.trajectory.one_target.references import (
    reproducible,
    simulate_references,
)
from exhume.attacks.informed.trajectory.one_target.search import Effort, Prepared, Search, spread
from exhume.attacks.informed.trajectory.one_target.unroll import unroll
from exhume.protocol.defence import undefended
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.release import Release
from exhume.training.answers import Answers
from exhume.training.network import Training
from exhume.training.optimisers import SGD

__all__ = ["Effort", "Prepared", "invert_one", "prepare", "slackened", "trained_network"]

_BLUR = 0.2
"""The distance from a kink within which the rough Jacobians include it."""
SLIGHT = 3e-4
"""Noise below this share of the record's effect needs no prior: the plain search is used."""


def prepare(
    release: Release,
    knowledge: Knowledge,
    rng: np.random.Generator,
    *,
    effort: Effort | None = None,
) -> Prepared:
    """Do the work that depends only on the kind of release, not on its numbers.

    Raises InputError if the release can't be read or the training can't be repeated.
    """
    effort = Effort() if effort is None else effort
    training, fixed_set = trained_network(knowledge), knowledge.fixed_set
    if fixed_set is None:
        raise InputError("the fixed set is not known: there is no training to repeat")
    double, single = training.objective("float64"), training.objective("float32")
    read = observed_release(release, double)
    exact, rough = (
        unroll(
            training,
            fixed_set,
            observed_release(release, objective).observation,
            objective=objective,
            target_weight=knowledge.target_weight,
            blur=blur,
        )
        for objective, blur in ((double, 0.0), (single, _BLUR))
    )
    kept = None
    if not isinstance(training.optimiser, SGD):
        kept = reproducible(exact, rough, fixed_set)
        for unrolled in (exact, rough):
            unrolled.observation = read.only(kept).observation
    references = simulate_references(
        rough, training, fixed_set, each=effort.each, crossed=effort.crossed, rng=rng
    )
    return Prepared(training, double, kept, exact, rough, references)


def trained_network(knowledge: Knowledge) -> Training:
    """Return the network's training inside any defences or answers, or raise InputError."""
    mechanism = knowledge.training
    inner = None if mechanism is None else undefended(mechanism)
    if isinstance(inner, Answers):
        inner = undefended(inner.inner)
    if not isinstance(inner, Training):
        raise InputError(f"the training of a network must be known, got {mechanism}")
    return inner


def invert_one(
    release: Release,
    knowledge: Knowledge,
    rng: np.random.Generator,
    *,
    effort: Effort | None = None,
    prepared: Prepared | None = None,
    prior: TrajectoryPrior | None = None,
) -> Reconstruction:
    """Solve θ(x) = θ* for the one unknown record, and for its label if unknown.

    ``prepared`` may come from another release of the same kind, training and fixed set. The answer
    is CONVERGED only if training again with it ends at the release: at a relative residual of at
    most ``effort.certificate``, or within the noise that the mechanism is known to add. With noise,
    the answer is the most probable record under ``prior``. By default this is a Gaussian fitted to
    the adversary's pool of records.
    """
    effort = Effort() if effort is None else effort
    if prepared is None:
        prepared = prepare(release, knowledge, rng, effort=effort)
    read = observed_release(release, prepared.objective)
    read = read if prepared.kept is None else read.only(prepared.kept)
    search = Search(prepared, read, knowledge, effort)
    fixed_set = knowledge.fixed_set
    assert fixed_set is not None
    noise = noise_deviation(knowledge.training, prepared.training, fixed_set, prepared.exact)
    share = 0.0 if noise is None else float(noise.norm()) / search.problem.scale
    if noise is None or share < SLIGHT:
        search.effort = slackened(effort, share)
        return search.answer(search.run(), rng)
    return NoisySearch(search, noise, prior).answer(rng)


def slackened(effort: Effort, share: float) -> Effort:
    """Return the effort with tolerances for noise of this share of the record's effect."""
    return replace(
        effort,
        tolerance=max(effort.tolerance, 1.1 * share),
        certificate=max(effort.certificate, math.sqrt(2.0) * share),
    )


_LABELS = 4
_SURE = 0.5
"""Only an error below this share of the pool's spread says something about the record itself."""


class NoisySearch:
    """Fits release and prior together, for the labels with the best evidence."""

    def __init__(self, search: Search, noise: Tensor, prior: TrajectoryPrior | None) -> None:
        self.search, self.noise = search, noise
        self.prior = _pool_prior(search.knowledge) if prior is None else prior

    def run(self) -> list[Posterior]:
        """Return the fit of each label, the most probable first."""
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
        """Return one candidate per label, the most probable first."""
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
        return "the noise on the release determines the record hardly better than its prior"
    return f"the residual is {best.misfit:.3g} times the residual of the release's noise"


def _pool_prior(knowledge: Knowledge) -> TrajectoryPrior:
    pool = knowledge.pool()
    if len(pool) < 2:
        raise InputError(f"a prior needs at least 2 known records, there are {len(pool)}")
    return pool_prior(pool.reshape(len(pool), -1))
