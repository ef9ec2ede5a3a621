"""A record that is on no list, from a transcript: the most probable one under a Gaussian prior.

The likelihood is that of the prior-aware attack, the prior that of the records it knows.
Gauss–Newton over all steps at once; under Poisson sampling in turns with the probability that the
record took part in a step (expectation maximisation, Dempster, Laird and Rubin 1977). Where there
is hardly any noise, both begin with more of it (annealing).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from exhume.attacks.informed.trajectory.observation import WholeVector
from exhume.attacks.informed.trajectory.one_target.gauss_newton import ResidualProblem
from exhume.attacks.informed.trajectory.one_target.gaussian_prior import (
    TrajectoryPrior,
    pool_prior,
)
from exhume.attacks.informed.trajectory.one_target.noise import (
    Posterior,
    explains,
    most_probable,
    posterior_variance,
)
from exhume.attacks.informed.trajectory.one_target.search import spread
from exhume.attacks.informed.trajectory.one_target.unrolled import Path, Unrolled
from exhume.attacks.informed.transcript.evidence import log_ratios, taking_part
from exhume.attacks.informed.transcript.watched import Rest
from exhume.protocol.arrays import FloatArray
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.records import Records

_LABELS = 4
"""So many labels are fitted: those of the known records that explain the transcript best."""
_EACH = 32
"""So many known records of each label are compared with the transcript, to start from."""
_TURNS, _ITERATIONS = 2, 4
"""Turns of expectation maximisation, and Gauss–Newton steps of each, per level of noise."""
_COOLER = 0.1
"""The noise of a level over that of the one before."""
_SURE = 0.5
"""Only an error below this share of the pool's spread says something about the record itself."""
_ROUNDING = 1e-4
"""The noise where none is stated, in units of a step without the known records."""
_MOST_NUMBERS = 2**24
"""Of a longer transcript only every so many steps are used: a search keeps 25 such vectors."""


def most_probable_record(
    rest: Rest, knowledge: Knowledge, rng: np.random.Generator
) -> Reconstruction:
    """Return the most probable record of each label that was tried, the most probable first."""
    skipped = -(-rest.values.numel() // _MOST_NUMBERS)
    fits = _Fits(_every(rest, skipped), knowledge)
    found = [fits.fit(start) for start in fits.starts(rng)]
    ranked = sorted(found, key=lambda one: -one.score)
    ranked[0] = best = fits.measured(ranked[0], rng)
    scores = np.array([one.score for one in ranked])
    low, high = knowledge.value_range or (-math.inf, math.inf)
    status = fits.status(best.posterior)
    weights = np.exp(np.clip(scores - scores[0], -700.0, 0.0))
    return Reconstruction(
        np.stack([np.clip(one.record.x[0], low, high) for one in ranked]),
        status,
        labels=np.concatenate([one.record.labels for one in ranked]),
        confidence=weights / weights.sum(),
        error_estimate=np.sqrt([one.posterior.variance for one in ranked]),
        message=_why(status, skipped),
        stats={
            "misfit": best.posterior.misfit,
            "log_posterior": best.score,
            "labels_tried": len(ranked),
            "iterations": sum(one.posterior.iterations for one in ranked),
        },
    )


@dataclass(frozen=True, eq=False)
class _FittedRecord:
    """The most probable record under one label, how it was found, and its log posterior."""

    record: Records
    posterior: Posterior
    score: float
    seen: _SeenSteps
    noise: Tensor


class _Fits:
    """Fits of one transcript, label by label."""

    def __init__(self, rest: Rest, knowledge: Knowledge) -> None:
        self.rest, self.knowledge, self.weight = rest, knowledge, knowledge.target_weight
        self.cooling = tuple(_cooling(rest))
        pool = knowledge.pool()
        self.prior: TrajectoryPrior = pool_prior(pool.reshape(len(pool), -1))

    def starts(self, rng: np.random.Generator) -> list[Records]:
        """Return a known record for each of the labels with the best evidence."""
        parts = [self.knowledge.fixed_set, self.knowledge.shadow_targets]
        known = [part for part in parts if part is not None and part.y is not None]
        given, ranked = self.knowledge.labels, list[tuple[float, Records]]()
        x = np.concatenate([np.asarray(part.x) for part in known])
        y = np.concatenate([part.labels for part in known])
        for label in np.unique(y) if given is None else given[:1]:
            of = np.flatnonzero(y == label)
            of = of if len(of) else np.arange(len(y))
            drawn = rng.permutation(of)[:_EACH]
            some = Records(x[drawn], np.full(len(drawn), label))
            scores = log_ratios(self.cooling[0], some, self.weight)
            best = int(np.argmax(scores))
            ranked.append((float(scores[best]), some.take([best])))
        ranked.sort(key=lambda one: -one[0])
        return [start for _, start in ranked[:_LABELS]]

    def fit(self, start: Records) -> _FittedRecord:
        """Fit transcript and prior together, with the label of ``start``."""
        seen, weight = _SeenSteps(self.rest, start, self.weight), self.weight
        flat = torch.tensor(np.asarray(start.x).reshape(-1))
        record, here, kept = torch.cat([flat, flat.new_zeros(1)]).to(seen.initial), start, 0.3
        for rest in self.cooling:
            noise = seen.noise(rest, taking_part(rest, here, weight)[:, 0])
            problem = seen.problem(self.rest.values)
            posterior = most_probable(
                problem, self.prior, noise, record, iterations=_ITERATIONS, kept=kept
            )
            record, kept = posterior.record, 1.0
            here = Records(_array(record[:-1]).reshape(start.x.shape), start.labels)
        whitened = self.prior.inverse_root(record[:-1].double() - self.prior.mean)
        evidence = float(log_ratios(self.rest, here, weight)[0])
        score = evidence - 0.5 * float(whitened.square().sum())
        return _FittedRecord(here, posterior, score, seen, noise)

    def measured(self, fit: _FittedRecord, rng: np.random.Generator) -> _FittedRecord:
        """Return a fit with its variance in all directions, not only in those it was found by."""
        problem, found = fit.seen.problem(self.rest.values), fit.posterior
        variance = posterior_variance(problem, self.prior, fit.noise, found.record, rng)
        return replace(fit, posterior=replace(found, variance=variance))

    def status(self, best: Posterior) -> Status:
        """Return whether the record explains the steps, and is more than its prior."""
        if not math.isfinite(best.cost) or not explains(best, self.rest.values.numel()):
            return Status.NOT_CONVERGED
        sure = math.sqrt(best.variance) < _SURE * spread(self.knowledge)
        return Status.CONVERGED if sure else Status.APPROXIMATE


class _SeenSteps(Unrolled):
    """(x, 0) → a record's clipped gradients at the parameters of every step, (steps · P,)."""

    def __init__(self, rest: Rest, start: Records, weight: float) -> None:
        super().__init__(WholeVector(), start.x[0].size + 1, rest.thetas[0])
        self.rest, self.weight, self.shape = rest, weight, start.x.shape
        self.y = rest.objective.responses(rest.training.responses(start.labels))
        # Not infinite, so that its share's slope is 0 and not undefined.
        self.norms = rest.objective.tensor(np.minimum(rest.rules.norms, 1e12))

    def problem(self, values: Tensor) -> ResidualProblem:
        """Return the least-squares problem; its records are without bounds."""
        unbound = torch.full((self.unknowns,), math.inf).to(self.initial)
        free = torch.ones(self.unknowns, dtype=torch.bool)
        return ResidualProblem(self, self, values.reshape(-1), free, -unbound, unbound, 1.0)

    def noise(self, rest: Rest, parts: FloatArray) -> Tensor:
        """Return the deviation of each number; larger where the record hardly took part."""
        each = rest.objective.tensor(rest.deviations / np.sqrt(np.maximum(parts, 1e-12)))
        return each.repeat_interleave(self.rest.values.shape[1])

    def sent(self, x: Tensor) -> Tensor:
        """Return the clipped gradients (steps · P,) of one record (D,)."""
        record = x.to(self.initial).reshape(self.shape)
        clipped = torch.func.vmap(self._clipped, in_dims=(0, 0, None))
        each: Tensor = clipped(self.rest.thetas, self.norms, record)
        return each.reshape(-1)

    def _clipped(self, theta: Tensor, norms: Tensor, record: Tensor) -> Tensor:
        objective = self.rest.objective
        slope = torch.func.grad(lambda at: objective.losses(at, record, self.y)[0])
        own: Tensor = self.weight * slope(theta)
        if len(norms) == 1:
            norm: Tensor = own.norm()
            return own * (norms / norm.clamp_min(1e-12)).clamp_max(1.0)
        parts = zip(torch.split(own, objective.sizes), norms, strict=True)
        return torch.cat([p * (n / p.norm().clamp_min(1e-12)).clamp_max(1.0) for p, n in parts])

    def path(self, record: Tensor) -> Path:
        """Keep what the products at a record need."""
        return _SeenPath(self, record)

    def observed(self, record: Tensor) -> Tensor:
        """Return what the record adds to every step."""
        with torch.no_grad():
            return self.sent(record[:-1]).to(record)

    def _trained(self, record: Tensor) -> Tensor:
        return self.observed(record)

    def _weightless(self, record: Tensor) -> Tensor:
        return torch.zeros_like(self.rest.values).reshape(-1)


class _SeenPath(Path):
    """The Jacobian's products at one record; its last number, the label's place, never moves."""

    def __init__(self, seen: _SeenSteps, record: Tensor) -> None:
        self.unrolled, self.record, self._seen = seen, record, seen
        self.theta, self._pull = torch.func.vjp(seen.sent, record[:-1])[:2]

    def jvp(self, record: Tensor) -> Tensor:
        moved: Tensor = torch.func.jvp(self._seen.sent, (self.record[:-1],), (record[:-1],))[1]
        return moved

    def vjp(self, cotangent: Tensor) -> Tensor:
        (pulled,) = self._pull(cotangent)
        return torch.cat([pulled, pulled.new_zeros(1)])

    def push(self, initial: Tensor, record: Tensor) -> Tensor:
        return self.jvp(record)

    def pull(self, cotangent: Tensor) -> tuple[Tensor, Tensor]:
        return torch.zeros_like(self._seen.initial), self.vjp(cotangent)


def _cooling(rest: Rest) -> Iterator[Rest]:
    """Yield the steps with more noise than stated, then less and less, at last the stated."""
    signal = float(rest.values.square().mean().sqrt())
    least, level = np.maximum(rest.deviations, _ROUNDING * signal), signal
    turns = _TURNS if bool((rest.rules.rates < 1.0).any()) else 1
    while level > 2.0 * least.max():
        yield replace(rest, deviations=np.maximum(least, level))
        level *= _COOLER
    for _ in range(turns):
        yield replace(rest, deviations=least)


def _every(rest: Rest, skipped: int) -> Rest:
    """Return every so many steps."""
    if skipped == 1:
        return rest
    kept = np.arange(0, len(rest.values), skipped)
    return replace(
        rest,
        rules=rest.rules.take(kept),
        thetas=rest.thetas[::skipped],
        values=rest.values[::skipped],
        deviations=rest.deviations[kept],
    )


def _why(status: Status, skipped: int) -> str:
    reasons = {
        Status.APPROXIMATE: "the noise of the steps determines the record hardly better than the "
        "adversary's own records",
        Status.NOT_CONVERGED: "the most probable record does not explain the steps",
    }
    parts = [reasons[status]] if status in reasons else []
    if skipped > 1:
        parts.append(f"only every {skipped}th step was used")
    return "; ".join(parts)


def _array(tensor: Tensor) -> FloatArray:
    return np.asarray(tensor.detach().double().cpu().numpy())
