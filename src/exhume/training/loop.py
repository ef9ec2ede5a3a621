"""A training as pure, differentiable steps, for the plain loop and for attacks that unroll it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor, nn

from exhume.derivatives.objective import Loss, Objective
from exhume.protocol.errors import InputError
from exhume.training.optimisers import Optimiser, State
from exhume.training.schedules import Moment
from exhume.training.tape import Tape

if TYPE_CHECKING:
    from exhume.training.network import Training

_TILE = 500
"""Records of a batch that convolutions take at a time: three times faster than 5,000 at once."""

StatisticsOfBatch: TypeAlias = Tensor
"""Mean and unbiased variance of every normalisation's input (S,), as ``Objective.running``."""


@dataclass(frozen=True, eq=False)
class TrainingState:
    """The state of a training: θ (P,), running statistics (S,), the optimiser's state."""

    theta: Tensor
    running: Tensor
    memory: State


class BatchLoss:
    """The loss of one batch: a function of θ, the records and the numbers that ``tape`` holds.

    Labels are class indices (n,), shares of classes (n, classes), or responses.
    """

    def __init__(self, training: Training, objective: Objective, tape: Tape | None) -> None:
        self.training, self.objective, self.tape = training, objective, tape
        given = training.class_weights
        self._class_weights = None if given is None else objective.tensor(given)  # type: ignore[arg-type]
        layers = dict(objective.module.named_modules())
        self._normalisations = [layers[one.name] for one in training.traits.normalisations]

    def __call__(
        self,
        step: int,
        theta: Tensor,
        batch: tuple[Tensor, Tensor],
        weight: Tensor | None,
        count: int,
    ) -> tuple[Tensor, StatisticsOfBatch]:
        """Return the loss, and the statistics that the running ones move towards."""
        x, y = batch
        draws = nullcontext() if self.tape is None else self.tape.at(step)
        with draws, self._observed() as seen:
            if self.training.augmentation is not None:
                x = self.training.augmentation(x)
            scores = self._scores(theta, x)
        losses = self._losses(scores, y)
        total = losses.sum() if weight is None else (losses * weight).sum()
        statistics = torch.cat(seen) if seen else theta.new_zeros(0)
        return total / self._divisor(y, count), statistics

    def gradient(
        self, step: int, theta: Tensor, batch: tuple[Tensor, Tensor], weight: Tensor | None
    ) -> tuple[Tensor, StatisticsOfBatch]:
        """Return the gradient (P,) in θ, and the batch's statistics."""
        at = theta.detach().requires_grad_(True)
        # A Poisson-sampled batch may be empty: its gradient is 0, not 0 / 0.
        count = max(1, len(batch[1]))
        if self._tiled and count > _TILE:
            return self._summed(step, at, batch, weight), theta.new_zeros(0)
        total, seen = self(step, at, batch, weight, count)
        return torch.autograd.grad(total, at)[0], seen.detach()

    @cached_property
    def _tiled(self) -> bool:
        """Whether large batches are split: images between layers would leave the caches."""
        layers = self.objective.module.modules()
        return not self.training.joined and any(isinstance(one, nn.Conv2d) for one in layers)

    def _summed(
        self, step: int, at: Tensor, batch: tuple[Tensor, Tensor], weight: Tensor | None
    ) -> Tensor:
        """Return the gradient of the mean loss, tile by tile."""
        found = torch.zeros_like(at)
        weights = [None] * len(batch[1]) if weight is None else torch.split(weight, _TILE)
        tiles = (torch.split(part, _TILE) for part in batch)
        for x, y, own in zip(*tiles, weights, strict=False):
            total, _ = self(step, at, (x, y), own, len(batch[1]))
            found += torch.autograd.grad(total, at)[0]
        return found

    def _scores(self, theta: Tensor, x: Tensor) -> Tensor:
        if self.training.traits.draws:
            return self.objective.scores_in_training(theta, x)
        return self.objective.scores(theta, x)

    def _losses(self, scores: Tensor, y: Tensor) -> Tensor:
        if self.objective.loss is Loss.SQUARED_ERROR:
            return 0.5 * (scores - y.reshape(scores.shape)).square().sum(dim=1)
        return nn.functional.cross_entropy(
            scores,
            y,
            weight=self._class_weights,
            label_smoothing=self.training.label_smoothing,
            reduction="none",
        )

    def _divisor(self, y: Tensor, count: int) -> Tensor | int:
        """Return the divisor of the sum of losses: with class weights, the batch's sum of them."""
        if self._class_weights is None:
            return count
        shares = self._class_weights[y] if y.ndim == 1 else y @ self._class_weights
        return shares.sum()

    @contextmanager
    def _observed(self) -> Iterator[list[Tensor]]:
        """Collect the statistics of every normalisation's input in a forward pass."""
        seen: list[Tensor] = []

        def note(_layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            x = inputs[0]
            if x.numel() <= x.shape[1]:
                raise InputError(
                    f"batch normalisation needs more than {len(x)} record per batch; choose a "
                    "batch_size that leaves no single record over"
                )
            variance, mean = torch.var_mean(x, dim=[0, *range(2, x.ndim)])
            seen.extend((mean, variance))

        handles = [layer.register_forward_pre_hook(note) for layer in self._normalisations]
        try:
            yield seen
        finally:
            for handle in handles:
                handle.remove()


class StepRule:
    """Maps a gradient and a batch's statistics to the next state: pure, differentiable, no records.

    ``count`` is the number of training records.
    """

    def __init__(self, training: Training, objective: Objective, count: int) -> None:
        self.training, self._objective, self._count = training, objective, count

    def start(self, theta: Tensor) -> TrainingState:
        """Return the state before the first step: statistics of mean 0 and variance 1."""
        parts = [
            theta.new_full(shape, 1.0 if name.endswith("running_var") else 0.0)
            for name, shape in self._objective.running.items()
        ]
        running = torch.cat(parts) if parts else theta.new_zeros(0)
        return TrainingState(theta, running, self.training.optimiser.start(theta))

    def __call__(
        self, step: int, place: TrainingState, gradient: Tensor, statistics: StatisticsOfBatch
    ) -> TrainingState:
        """Return the state after ``step``."""
        limit = self.training.gradient_norm
        if limit is not None:
            gradient = _cut(gradient, limit)
        theta, memory = self.optimiser(step).step(place.theta, gradient, place.memory)
        running = place.running
        if len(running):
            running = running + self._pull(step).to(running) * (statistics - running)
        return TrainingState(theta, running, memory)

    def optimiser(self, step: int) -> Optimiser:
        """Return the optimiser with the schedule's settings at ``step``."""
        training = self.training
        if training.schedule is None:
            return training.optimiser
        per_epoch = training.steps_per_epoch(self._count)
        moment = Moment(step, training.epochs * per_epoch, per_epoch)
        return training.schedule.at(training.optimiser, moment)

    def _pull(self, step: int) -> Tensor:
        """Return the weight of a batch's statistics in the running ones, (S,)."""
        if bool(self._pulls.isnan().any()):
            # momentum = None is the plain mean of all batches so far.
            return self._pulls.nan_to_num(1.0 / (step + 1))
        return self._pulls

    @cached_property
    def _pulls(self) -> Tensor:
        found: list[float] = []
        for one in self.training.traits.normalisations:
            found += [math.nan if one.momentum is None else one.momentum] * (2 * one.size)
        return torch.tensor(found, dtype=torch.float64)


def _cut(gradient: Tensor, limit: float) -> Tensor:
    """Return the gradient with a norm of at most ``limit``, as ``clip_grad_norm_`` does."""
    length = (gradient.square().sum() + torch.finfo(gradient.dtype).tiny).sqrt()
    return gradient * (limit / (length + 1e-6)).clamp_max(1.0)
