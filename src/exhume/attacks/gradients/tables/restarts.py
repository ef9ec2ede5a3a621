"""Many starts of one search at once: the release of each, in one pass through the network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call

from exhume.attacks.gradients.matching.loop import MatchingProblem
from exhume.attacks.gradients.matching.problem import MatchableRelease
from exhume.protocol.defence import Blurring, Defence
from exhume.protocol.mechanism import layers
from exhume.training.gradient import GradientStep
from exhume.training.local_steps import LocalSteps
from exhume.training.simulation import mean_loss

Releases: TypeAlias = Callable[[Tensor, Tensor], list[Tensor]]
"""From records (starts, n, *shape) with labels (starts, n, …) to each start's release."""

_AGREED = 1e-3
"""The largest relative difference of one pass from start by start: rounding in single precision."""


def releases_of(reading: MatchableRelease, problem: MatchingProblem) -> Releases:
    """Return the releases of several starts, in the units of ``problem.released``.

    A plain gradient and local steps take all starts in one pass, if that gives what start by start
    does on two of them: batch normalisation mixes records, and foreign code may not allow it. What
    a defence does is simulated start by start.
    """

    def one_by_one(rows: Tensor, labels: Tensor) -> list[Tensor]:
        each = [problem.simulate(*pair) for pair in zip(rows, labels, strict=True)]
        return [torch.stack(parts) for parts in zip(*each, strict=True)]

    together = _Together(reading, problem) if _plain(reading) else None
    if together is None or not _same(together, one_by_one, problem):
        return one_by_one
    return together


def _plain(reading: MatchableRelease) -> bool:
    """Whether there is nothing to simulate but a gradient or steps: added noise is not."""
    mechanism = reading.mechanism
    local = isinstance(mechanism, LocalSteps) and isinstance(mechanism.client, GradientStep)
    around = [layer for layer in layers(reading.stack) if isinstance(layer, Defence)]
    noisy = all(isinstance(layer, Blurring) for layer in around)
    return noisy and (isinstance(mechanism, GradientStep) or local)


def _same(one: Releases, other: Releases, problem: MatchingProblem) -> bool:
    frame = problem.frame
    drawn = np.random.default_rng(0).standard_normal((2, frame.count, *frame.record_shape))
    classes = problem.simulation.objective.network.outputs
    labels = problem.labels
    if labels is None:
        labels = frame.tensor(np.full((frame.count, classes), 1.0 / classes))
    arguments = frame.tensor(drawn), torch.stack([labels, labels])
    try:
        pairs = list(zip(one(*arguments), other(*arguments), strict=True))
    except (RuntimeError, ValueError, NotImplementedError):
        return False
    apart = sum(float((a - b).detach().square().sum()) for a, b in pairs)
    return apart <= _AGREED**2 * sum(float(b.detach().square().sum()) for _, b in pairs)


class _Together:
    """The releases of all starts, each with a copy of the parameters of its own."""

    def __init__(self, reading: MatchableRelease, problem: MatchingProblem) -> None:
        self._problem, self._objective = problem, problem.simulation.objective
        self._theta = self._objective.unpack(self._objective.flat(reading.parameters))
        mechanism = reading.mechanism
        self._local = mechanism if isinstance(mechanism, LocalSteps) else None

    def __call__(self, rows: Tensor, labels: Tensor) -> list[Tensor]:
        """Return one tensor (starts, *shape) per released parameter."""
        starts = len(rows)
        rows, labels = self._with_known(rows), self._with_known_labels(labels)
        theta = {
            n: p.detach().expand(starts, *p.shape).clone().requires_grad_(True)
            for n, p in self._theta.items()
        }
        names = self._problem.simulation.names
        if self._local is None:
            found = self._gradient(theta, rows, labels)
            return self._problem.released.seen([found[name] for name in names])
        ends = self._after_steps(self._local, theta, rows, labels)
        return self._problem.released.seen([ends[name] - theta[name] for name in names])

    def _gradient(
        self, theta: Mapping[str, Tensor], rows: Tensor, labels: Tensor
    ) -> dict[str, Tensor]:
        def scores_of(own: Mapping[str, Tensor], records: Tensor) -> Tensor:
            scores: Tensor = functional_call(self._objective.module, dict(own), (records,))
            return scores

        scores = torch.func.vmap(scores_of)(theta, rows).flatten(0, 1)
        # The sum over starts of their mean losses: no start's parameters see another's records.
        loss = len(rows) * mean_loss(self._objective, scores, labels.flatten(0, 1))
        slopes = torch.autograd.grad(
            loss, list(theta.values()), create_graph=True, materialize_grads=True
        )
        return dict(zip(theta, slopes, strict=True))

    def _after_steps(
        self, local: LocalSteps, theta: Mapping[str, Tensor], rows: Tensor, labels: Tensor
    ) -> dict[str, Tensor]:
        now, optimiser = dict(theta), local.optimiser
        state = {n: optimiser.start(p) for n, p in now.items()}
        for chosen in local.assumed_steps(rows.shape[1]):
            if not len(chosen):
                slopes = {n: torch.zeros_like(p) for n, p in now.items()}
            else:
                slopes = self._gradient(now, rows[:, chosen], labels[:, chosen])
            for name, slope in slopes.items():
                now[name], state[name] = optimiser.step(now[name], slope, state[name])
        return now

    def _with_known(self, rows: Tensor) -> Tensor:
        if self._problem.known is None:
            return rows
        x = self._problem.known[0]
        return torch.cat([rows, x.expand(len(rows), *x.shape)], dim=1)

    def _with_known_labels(self, labels: Tensor) -> Tensor:
        if self._problem.known is None:
            return labels
        y = self._problem.known[1]
        if labels.is_floating_point() and not y.is_floating_point():
            y = torch.nn.functional.one_hot(y, labels.shape[-1]).to(labels.dtype)
        return torch.cat([labels, y.expand(len(labels), *y.shape)], dim=1)
