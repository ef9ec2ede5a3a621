"""Inversion of a release with known noise: the most probable record, and its uncertainty."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from exhume.attacks.informed.trajectory.one_target.gauss_newton import (
    IterationBudget,
    ResidualProblem,
    Solution,
    gauss_newton,
)
from exhume.attacks.informed.trajectory.one_target.gaussian_prior import (
    SeenThroughPrior,
    TrajectoryPrior,
)
from exhume.attacks.informed.trajectory.one_target.unrolled import Unrolled
from exhume.bounds.floors import Probing, cramer_rao_from_products
from exhume.protocol.arrays import FloatArray
from exhume.protocol.defence import Blurring
from exhume.protocol.mechanism import Mechanism, layers
from exhume.protocol.records import Records
from exhume.training.network import Training


@dataclass(frozen=True, eq=False)
class Posterior:
    """The most probable record (R,) under one label, and how well it explains the release.

    ``misfit`` is the residual's mean square in units of the noise (about 1 if the record explains
    it). ``cost`` is the negative log posterior up to a constant. ``variance`` is an upper estimate,
    to first order, of an entry's mean posterior variance: unresolved directions count with the
    prior's variance.
    """

    record: Tensor
    misfit: float
    cost: float
    variance: float
    iterations: int


def noise_deviation(
    mechanism: Mechanism | None, training: Training, fixed_set: Records, unrolled: Unrolled
) -> Tensor | None:
    """Return the deviation (m,) of the release's noise as the mechanism states it, or None.

    The noise of blurring defences is known. The noise of DP-GD passes through the training. A few
    noisy trainings without the record measure its size, per layer.
    """
    blur = _blurred(mechanism, len(fixed_set) + 1)
    seen = unrolled.observation.value(unrolled.base)
    variance = torch.full_like(seen, blur**2)
    if training.clipping is not None and training.clipping.noise_multiplier > 0:
        variance += _trained_noise(training, fixed_set, unrolled)
    return variance.sqrt() if bool((variance > 0).all()) else None


def _blurred(mechanism: Mechanism | None, records: int) -> float:
    around = () if mechanism is None else layers(mechanism)
    return math.hypot(*(one.deviation(records) for one in around if isinstance(one, Blurring)))


def _trained_noise(training: Training, fixed_set: Records, unrolled: Unrolled) -> Tensor:
    objective = training.objective("float64")
    rng = np.random.default_rng(0)
    runs = []
    for _ in range(4):
        theta = training.run(objective, fixed_set, rng=rng).to(unrolled.initial.dtype)
        runs.append(unrolled.observation.value(theta))
    gaps = torch.stack(runs)
    squares = (gaps - gaps.mean(dim=0)).square().sum(dim=0) / (len(runs) - 1)
    if len(squares) != sum(objective.sizes):
        return squares.mean().expand_as(squares)
    parts = torch.split(squares, objective.sizes)
    return torch.cat([part.mean().expand_as(part) for part in parts])


def most_probable(
    problem: ResidualProblem,
    prior: TrajectoryPrior,
    noise: Tensor,
    start: Tensor,
    *,
    iterations: int,
    kept: float = 0.3,
) -> Posterior:
    """Fit release and prior together from ``start`` (R,), with its label held fixed.

    Only the share ``kept`` of the start's distance from the prior's mean is kept: a start that is
    far from it would first have to return to it.
    """
    exact = SeenThroughPrior(problem.exact, prior, noise)
    rough = SeenThroughPrior(problem.rough, prior, noise)
    entries = exact.entries
    free = problem.free.clone()
    free[entries:] = False
    unbound = torch.full_like(start, math.inf)
    observed = torch.cat([problem.observed / noise, torch.zeros_like(start[:entries])])
    whitened = replace(
        problem,
        exact=exact,
        rough=rough,
        observed=observed,
        free=free,
        low=-unbound,
        high=unbound,
        scale=math.sqrt(len(noise)),
    )
    budget = IterationBudget(
        iterations=iterations, directions=24, far_directions=24, tolerance=0.0, quantile=1.0
    )
    begin = exact.whitened(start)
    begin[:entries] *= kept
    found = gauss_newton(whitened, begin, budget)
    return _posterior(exact, found, len(noise))


def _posterior(exact: SeenThroughPrior, found: Solution, count: int) -> Posterior:
    misfit = float(found.residual[:count].square().mean())
    variance = exact.prior.variance()
    if found.triplets is not None:
        # Each resolved direction's variance shrinks from 1 to 1/s², s² counting the prior's own 1.
        shares = 1.0 - 1.0 / found.triplets.values.square().clamp_min(1.0)
        right = found.triplets.right[: exact.entries]
        moved = torch.stack([exact.prior.root(column) for column in right.T])
        variance -= float((shares * moved.square().sum(dim=1)).sum()) / exact.entries
    return Posterior(
        exact.record(found.record),
        misfit,
        0.5 * float(found.residual.square().sum()),
        max(variance, 0.0),
        len(found.history) - 1,
    )


def posterior_variance(
    problem: ResidualProblem,
    prior: TrajectoryPrior,
    noise: Tensor,
    record: Tensor,
    rng: np.random.Generator,
) -> float:
    """Return the mean posterior variance of an entry at ``record`` (R,), to first order.

    This is tr((JᵀJ/σ² + S⁻¹)⁻¹)/D, estimated from random probes like the Cramér–Rao floor. S is the
    prior's covariance, so this is the floor of Van Trees at one record.
    """
    through = SeenThroughPrior(problem.rough, prior, noise)
    path = through.path(through.whitened(record.to(through.initial.dtype)))
    entries = len(prior.mean)
    unmoved = torch.zeros(len(record) - entries, dtype=through.initial.dtype)

    def times(rows: FloatArray) -> FloatArray:
        moves = torch.as_tensor(rows).to(unmoved.dtype)
        whitened = [prior.inverse_root(one) for one in moves]
        return torch.stack([path.jvp(torch.cat([w, unmoved])) for w in whitened]).double().numpy()

    def transposed_times(rows: FloatArray) -> FloatArray:
        pulled = [path.vjp(one)[:entries] for one in torch.as_tensor(rows).to(unmoved.dtype)]
        return torch.stack([prior.inverse_root(one) for one in pulled]).double().numpy()

    found = cramer_rao_from_products(
        times,
        transposed_times,
        1.0,
        shape=(len(noise) + entries, entries),
        epsilon=float(torch.finfo(unmoved.dtype).eps),
        probing=Probing(probes=4, steps=30, accuracy=0.05),
        rng=rng,
    )
    return min(found.value, prior.variance())


def explains(posterior: Posterior, count: int) -> bool:
    """Return whether the residual is that of the noise alone, within five deviations."""
    return posterior.misfit <= 1.0 + 5.0 * math.sqrt(2.0 / count)
