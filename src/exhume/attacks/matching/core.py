"""The one loop of gradient matching: objective, prior and optimiser are its parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from exhume.attacks.matching.continuation import Continuation
from exhume.attacks.matching.objectives import (
    Distance,
    Released,
    batch_norm_distance,
    feature_distance,
    span_distance,
    total_variation,
)
from exhume.attacks.matching.optimisers import LBFGS, Optimiser
from exhume.attacks.matching.priors import Frame, Prior, Variables
from exhume.attacks.matching.simulation import Simulation
from exhume.errors import InputError

Progress: TypeAlias = Callable[[int, int, float], None]
"""Told (steps done, steps in all, the lowest loss so far)."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Problem:
    """Find the batch that releases ``released``.

    ``labels`` (n,) are of the unknown records, None to find them along as soft labels (Zhu et al.
    2019). ``known`` are records (k, *record shape) and labels that are in the batch too, after the
    unknown ones. ``statistics`` (mean, variance) and ``features`` are what the terms of those
    names compare with, features row by row, or as a basis of their span where they are
    ``spanned``; a weight of 0 leaves a term out. The weight of total variation never falls below
    ``least_variation``, however a run begins and ends.
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
        """Return the images with known pixels (``attributes``: mask and values) put in."""
        if self.attributes is None:
            return images
        mask, values = self.attributes
        return torch.where(mask, values, images)

    def simulate(self, images: Tensor, labels: Tensor) -> list[Tensor]:
        """Return what the images and the known records release, in the units of ``released``."""
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
        """Return ‖g − g*‖ / ‖g*‖ over what was released."""
        pairs = zip(self.simulate(images, labels), self.released.values, strict=True)
        return math.sqrt(sum(float((g - t).detach().square().sum()) for g, t in pairs))


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How long to try: ``steps`` of the optimiser a run, ``restarts`` runs.

    A run ends early where the distance is below ``enough``, or where ``patience`` steps in a row
    brought less than 0.1% off the lowest loss.
    """

    steps: int
    restarts: int = 1
    enough: float = 0.0
    patience: int | None = None

    def __post_init__(self) -> None:
        if min(self.steps, self.restarts) < 1:
            raise InputError(f"steps and restarts must be at least 1, got {self}")


@dataclass(frozen=True, eq=False)
class Run:
    """Where one run ended: the iterate with the lowest loss, never chosen by anything else.

    ``images`` (n, *record shape), ``labels`` (n,) or soft (n, classes); ``loss`` is the whole
    objective, ``distance`` the part that compares releases, ``history`` the loss along the way,
    ``nuisances`` what defences are taken to have drawn.
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
class Match:
    """The best run by its loss, all runs, and how far apart the best two end (RMS of a pixel)."""

    best: Run
    runs: tuple[Run, ...]
    disagreement: float | None

    @property
    def evaluations(self) -> int:
        """Over all runs."""
        return sum(run.evaluations for run in self.runs)


def match(
    problem: Problem,
    prior: Prior,
    optimiser: Optimiser,
    budget: Budget,
    rng: np.random.Generator,
    *,
    continuation: Continuation | None = None,
    progress: Progress | None = None,
) -> Match:
    """Match the release from ``budget.restarts`` starts and keep the lowest loss.

    The same stream gives the same answer; the truth plays no part in any choice. With a
    ``continuation`` only iterates of the exact network count.
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
    found = merged([Match(run, (run,), None) for run in runs])
    problem.simulation.nuisances.put(found.best.nuisances)
    return found


def merged(matches: Sequence[Match]) -> Match:
    """Return several matches as one."""
    runs = sorted((run for one in matches for run in one.runs), key=lambda run: run.loss)
    return Match(runs[0], tuple(runs), _disagreement(runs))


def descend(
    problem: Problem,
    variables: Variables,
    optimiser: Optimiser,
    budget: Budget,
    rng: np.random.Generator,
    *,
    continuation: Continuation | None = None,
    progress: Progress | None = None,
) -> Run:
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
    """Evaluates the objective for the optimiser and remembers the lowest point it saw."""

    def __init__(self, problem: Problem, variables: Variables, rng: np.random.Generator) -> None:
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
        """Change the problem to what it is when ``done`` of the steps are."""
        sharpness = continuation.sharpness(done)
        factor = continuation.variation_factor(done)
        variation = max(factor * self.given.total_variation, self.given.least_variation)
        self.problem = replace(self.given, total_variation=variation)
        self.problem.simulation.kinks.sharpness = sharpness
        if (sharpness is None) != self.exact:
            # Losses of a smooth and of the exact network can't be compared.
            self.exact, self.loss, self.best = sharpness is None, math.inf, None
            self.distance = math.inf

    def labels(self) -> Tensor:
        if self.soft is not None:
            return self.soft.softmax(dim=1)
        assert self.problem.labels is not None
        return self.problem.labels

    def evaluate(self) -> Tensor:
        """Fill in the unknowns' gradients and return the loss."""
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

    def run(self, steps: int, exhausted: bool, history: Sequence[float]) -> Run:
        """Return what was found."""
        assert self.best is not None
        finite = math.isfinite(self.loss)
        loss, distance = (self.loss, self.distance) if finite else (math.inf, math.inf)
        every = max(1, len(history) // 100)
        kept = tuple(history[::every])
        return Run(*self.best, loss, distance, self.evaluations, steps, exhausted, kept, self.drawn)


def without(problem: Problem, held_out: Sequence[int]) -> Problem:
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


def settle(problem: Problem, images: Tensor, labels: Tensor, *, rounds: int = 3) -> None:
    """Find what defences may have drawn for ``images`` as they are, where they drew anything."""
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


def _disagreement(runs: Sequence[Run]) -> float | None:
    """Return the RMS difference of the best two runs, records paired up as they fit best."""
    if len(runs) < 2:
        return None
    from scipy.optimize import linear_sum_assignment

    one, other = (run.images.flatten(1).double() for run in runs[:2])
    costs = torch.cdist(one, other).square() / one.shape[1]
    rows, columns = linear_sum_assignment(costs.cpu().numpy())
    return math.sqrt(float(costs[rows, columns].mean()))
