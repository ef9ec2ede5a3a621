"""The loop of gradient matching, with an objective, a prior and an optimiser as its parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from exhume.attacks.gradients.matching.objectives import (
    Distance,
    Released,
    batch_norm_distance,
    feature_distance,
    span_distance,
    total_variation,
)
from exhume.attacks.gradients.matching.optimisers import LBFGS, Optimiser
from exhume.attacks.gradients.matching.priors import Frame, ImagePrior, Variables
from exhume.derivatives.smoothed_relu import Continuation
from exhume.metrics.matching import rms_apart
from exhume.protocol.errors import InputError
from exhume.training.simulation import Simulation

Progress: TypeAlias = Callable[[int, int, float], None]
"""Called with (steps done, steps in total, lowest loss so far)."""


@dataclass(frozen=True, eq=False, kw_only=True)
class MatchingProblem:
    """The problem of finding the batch that releases ``released``.

    ``labels`` (n,) belong to the unknown records, or are None to optimise soft labels too (Zhu et
    al. 2019). ``known`` are records (k, *record shape) and labels in the same batch, after the
    unknown ones. The terms of the same names compare with ``statistics`` (mean, variance) and
    ``features``. Features are compared row by row, or as a basis of their span if ``spanned``. A
    weight of 0 disables a term. The weight of total variation never falls below
    ``least_variation``, however a run starts and ends.
    """

    simulation: Simulation
    released: Released
    distance: Distance
    frame: Frame
    labels: Tensor | None
    known: tuple[Tensor, Tensor] | None = None
    statistics: tuple[tuple[Tensor, Tensor], ...] = ()
    features: Tensor | None = None
    spanned: bool = False
    total_variation: float = 0.0
    least_variation: float = 0.0
    batch_norm: float = 0.0
    feature: float = 0.0
    range_penalty: float = 0.0
    attributes: tuple[Tensor, Tensor] | None = None

    def completed(self, images: Tensor) -> Tensor:
        """Return the images with the known pixels (``attributes``: mask and values) inserted."""
        if self.attributes is None:
            return images
        mask, values = self.attributes
        return torch.where(mask, values, images)

    def simulate(self, images: Tensor, labels: Tensor) -> list[Tensor]:
        """Return the release of the images and the known records, in the units of ``released``."""
        if self.known is not None:
            x, y = self.known
            images = torch.cat([images, x])
            if labels.is_floating_point() and not y.is_floating_point():
                y = torch.nn.functional.one_hot(y, labels.shape[1]).to(labels.dtype)
            labels = torch.cat([labels, y])
        return self.released.seen(self.simulation.release(images, labels))

    def losses(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the whole objective, and the distance alone."""
        distance = self.distance(self.simulate(images, labels), self.released)
        total = distance
        if self.total_variation:
            total = total + self.total_variation * total_variation(images, self.frame.spread)
        if self.batch_norm and self.statistics:
            seen = self.simulation.watch.statistics[: len(self.statistics)]
            total = total + self.batch_norm * batch_norm_distance(seen, self.statistics)
        if self.feature and self.features is not None:
            features = self.simulation.watch.features[0][: self.frame.count]
            compare = span_distance if self.spanned else feature_distance
            total = total + self.feature * compare(features, self.features)
        if self.range_penalty and self.frame.box is not None:
            total = total + self.range_penalty * _outside(images, self.frame.box)
        return total, distance

    def residual(self, images: Tensor, labels: Tensor) -> float:
        """Return ‖g − g*‖ / ‖g*‖ over the released entries."""
        pairs = zip(self.simulate(images, labels), self.released.values, strict=True)
        return math.sqrt(sum(float((g - t).detach().square().sum()) for g, t in pairs))


@dataclass(frozen=True, kw_only=True)
class StepBudget:
    """The budget: ``steps`` of the optimiser per run, ``restarts`` runs.

    A run ends early if the distance is below ``enough``, or if ``patience`` steps in a row reduced
    the lowest loss by less than 0.1%.
    """

    steps: int
    restarts: int = 1
    enough: float = 0.0
    patience: int | None = None

    def __post_init__(self) -> None:
        if min(self.steps, self.restarts) < 1:
            raise InputError(f"steps and restarts must be at least 1, got {self}")


@dataclass(frozen=True, eq=False)
class Descent:
    """The result of one run: the iterate with the lowest loss, never chosen by anything else.

    ``images`` (n, *record shape), ``labels`` (n,) or soft (n, classes). ``loss`` is the whole
    objective, ``distance`` the part that compares releases, and ``history`` the loss of each step.
    ``nuisances`` are the assumed random draws of defences.
    """

    images: Tensor
    labels: Tensor
    loss: float
    distance: float
    evaluations: int
    steps: int
    exhausted: bool
    history: tuple[float, ...]
    nuisances: tuple[Tensor, ...] = ()


@dataclass(frozen=True, eq=False)
class MatchedRuns:
    """The best run by its loss, all runs, and the RMS pixel distance of the best two."""

    best: Descent
    runs: tuple[Descent, ...]
    disagreement: float | None

    @property
    def evaluations(self) -> int:
        """The number of evaluations over all runs."""
        return sum(run.evaluations for run in self.runs)


def match(
    problem: MatchingProblem,
    prior: ImagePrior,
    optimiser: Optimiser,
    budget: StepBudget,
    rng: np.random.Generator,
    *,
    continuation: Continuation | None = None,
    progress: Progress | None = None,
) -> MatchedRuns:
    """Match the release from ``budget.restarts`` starts and keep the lowest loss.

    The same random stream gives the same answer; no choice uses the truth. With a ``continuation``
    only iterates of the exact network count.
    """
    runs = []
    for number in range(budget.restarts):
        variables = prior.start(problem.frame, rng)
        run = descend(
            problem,
            variables,
            optimiser,
            budget,
            rng,
            continuation=continuation,
            progress=progress,
        )
        runs.append(run)
        if run.distance <= budget.enough and number == 0:
            break
    found = merged([MatchedRuns(run, (run,), None) for run in runs])
    problem.simulation.nuisances.put(found.best.nuisances)
    return found


def merged(matches: Sequence[MatchedRuns]) -> MatchedRuns:
    """Merge several matches into one."""
    runs = sorted((run for one in matches for run in one.runs), key=lambda run: run.loss)
    return MatchedRuns(runs[0], tuple(runs), _disagreement(runs))


def descend(
    problem: MatchingProblem,
    variables: Variables,
    optimiser: Optimiser,
    budget: StepBudget,
    rng: np.random.Generator,
    *,
    continuation: Continuation | None = None,
    progress: Progress | None = None,
) -> Descent:
    """Run one optimiser from one start."""
    track = _Track(problem, variables, rng)
    step = optimiser.start(track.unknowns, budget.steps)
    history, waited, done = [], 0, 0
    for done in range(1, budget.steps + 1):
        if continuation is not None:
            track.continued(continuation, (done - 1) / budget.steps)
        before = track.loss
        step(track.evaluate)
        variables.project()
        history.append(track.last)
        if progress is not None:
            progress(done, budget.steps, track.loss)
        waited = 0 if track.loss < 0.999 * before else waited + 1
        out = budget.patience is not None and waited >= budget.patience and track.exact
        near = track.exact and track.distance <= budget.enough
        if out or near or not math.isfinite(track.last):
            break
    problem.simulation.kinks.sharpness = None
    return track.run(done, done == budget.steps, history)


class _Track:
    """Evaluates the objective for the optimiser and stores the lowest point seen."""

    def __init__(
        self, problem: MatchingProblem, variables: Variables, rng: np.random.Generator
    ) -> None:
        self.given = self.problem = problem
        self.variables = variables
        self.unknowns = list(variables.unknowns)
        self.soft: Tensor | None = None
        if problem.labels is None:
            classes = problem.simulation.objective.network.outputs
            drawn = problem.frame.tensor(rng.standard_normal((problem.frame.count, classes)))
            self.soft = drawn.requires_grad_(True)
            self.unknowns.append(self.soft)
        self.nuisances = problem.simulation.nuisances
        self.nuisances.restart(rng)
        if self.nuisances.expected:
            self.problem.simulate(problem.completed(variables.images().detach()), self.labels())
        self.unknowns += self.nuisances.values
        self.loss = self.distance = self.last = math.inf
        self.evaluations, self.exact = 0, True
        self.best: tuple[Tensor, Tensor] | None = None
        self.drawn: tuple[Tensor, ...] = ()

    def continued(self, continuation: Continuation, done: float) -> None:
        """Set the problem to its state after a share ``done`` of the steps."""
        sharpness = continuation.sharpness(done)
        factor = continuation.variation_factor(done)
        variation = max(factor * self.given.total_variation, self.given.least_variation)
        self.problem = replace(self.given, total_variation=variation)
        self.problem.simulation.kinks.sharpness = sharpness
        if (sharpness is None) != self.exact:
            # Losses of the smoothed and the exact network can't be compared.
            self.exact, self.loss, self.best = sharpness is None, math.inf, None
            self.distance = math.inf

    def labels(self) -> Tensor:
        if self.soft is not None:
            return self.soft.softmax(dim=1)
        assert self.problem.labels is not None
        return self.problem.labels

    def evaluate(self) -> Tensor:
        """Compute the unknowns' gradients and return the loss."""
        images, labels = self.problem.completed(self.variables.images()), self.labels()
        total, distance = self.problem.losses(images, labels)
        slopes = torch.autograd.grad(total, self.unknowns, materialize_grads=True)
        for unknown, slope in zip(self.unknowns, slopes, strict=True):
            unknown.grad = slope
        self.evaluations += 1
        self.last = float(total.detach())
        if self.last < self.loss or self.best is None:
            self.loss, self.distance = self.last, float(distance.detach())
            self.best = images.detach().clone(), labels.detach().clone()
            self.drawn = self.nuisances.kept()
        return total.detach()

    def run(self, steps: int, exhausted: bool, history: Sequence[float]) -> Descent:
        """Return the result of the run."""
        assert self.best is not None
        finite = math.isfinite(self.loss)
        loss, distance = (self.loss, self.distance) if finite else (math.inf, math.inf)
        every = max(1, len(history) // 100)
        kept = tuple(history[::every])
        return Descent(
            *self.best, loss, distance, self.evaluations, steps, exhausted, kept, self.drawn
        )


def without(problem: MatchingProblem, held_out: Sequence[int]) -> MatchingProblem:
    """Return the problem with the released parameters at these positions masked out."""
    released = problem.released
    masks, values, limits = list(released.masks), list(released.values), list(released.limits)
    for index in held_out:
        masks[index] = torch.zeros_like(values[index])
        values[index] = torch.zeros_like(values[index])
        if limits:
            limits[index] = None
    return replace(
        problem,
        released=replace(released, values=tuple(values), masks=tuple(masks), limits=tuple(limits)),
    )


def settle(problem: MatchingProblem, images: Tensor, labels: Tensor, *, rounds: int = 3) -> None:
    """Fit the random draws of defences, if there are any, to the given ``images``."""
    nuisances = problem.simulation.nuisances
    if not nuisances.expected:
        return
    nuisances.restart(np.random.default_rng(0))
    problem.simulate(images, labels)
    lowest, best = math.inf, nuisances.kept()

    def evaluate() -> Tensor:
        nonlocal lowest, best
        distance = problem.distance(problem.simulate(images, labels), problem.released)
        if float(distance.detach()) < lowest:
            lowest, best = float(distance.detach()), nuisances.kept()
        slopes = torch.autograd.grad(distance, nuisances.values, materialize_grads=True)
        for value, slope in zip(nuisances.values, slopes, strict=True):
            value.grad = slope
        return distance.detach()

    step = LBFGS().start(nuisances.values, rounds)
    for _ in range(rounds):
        step(evaluate)
    nuisances.put(best)


def _outside(images: Tensor, box: tuple[float, float]) -> Tensor:
    low, high = box
    return ((low - images).clamp_min(0.0) + (images - high).clamp_min(0.0)).square().mean()


def _disagreement(runs: Sequence[Descent]) -> float | None:
    """Return the RMS difference of the best two runs under the best pairing of records."""
    if len(runs) < 2:
        return None
    return rms_apart(*(run.images.flatten(1).double().cpu().numpy() for run in runs[:2]))
