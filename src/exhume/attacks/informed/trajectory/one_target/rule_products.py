"""A step's rule to first order: how a changed gradient changes parameters and state.

It also gives the transposed products. The rule is pure (``StepRule``: optimiser, schedule, gradient
norm, running statistics). It uses each entry a few times, so automatic differentiation costs little
compared with a gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from exhume.training.loop import StepRule, TrainingState


@dataclass(frozen=True, eq=False)
class _Noted:
    state: TrainingState
    gradient: Tensor
    statistics: Tensor


class RuleProducts:
    """The rule along one path. Call ``note`` once per step, in order, during training."""

    def __init__(self, rule: StepRule) -> None:
        self._rule = rule
        self._noted: list[_Noted] = []

    def note(self, state: TrainingState, gradient: Tensor, statistics: Tensor) -> None:
        """Store what the products of this step need: its start, its gradient and its statistics."""
        self._noted.append(_Noted(state, gradient, statistics))

    def start(self, theta: Tensor) -> TrainingState:
        """Return tangents at the start of training, where only θ changes, by ``theta`` (P,)."""
        return _state([theta, *map(torch.zeros_like, _parts(self._rule.start(theta))[1:])])

    def end(self, theta: Tensor, running: Tensor) -> TrainingState:
        """Return cotangents at the end of training, of parameters and running statistics alone."""
        memory = map(torch.zeros_like, self._rule.start(theta).memory)
        return TrainingState(theta, running, tuple(memory))

    def push(
        self, step: int, tangent: TrainingState, gradient: Tensor, statistics: Tensor
    ) -> TrainingState:
        """Return the change of the state after the step, given those of its inputs."""
        before, after = self._graph(step)
        probes = [torch.zeros_like(part, requires_grad=True) for part in after]
        # The transposed product is linear in its cotangent: its derivative is the product.
        pulled = torch.autograd.grad(
            after, before, probes, create_graph=True, materialize_grads=True
        )
        moves = [*_parts(tangent), gradient, statistics]
        linear = [pair for pair in zip(pulled, moves, strict=True) if pair[0].requires_grad]
        values, along = zip(*linear, strict=True)
        return _state(torch.autograd.grad(values, probes, along, materialize_grads=True))

    def pull(self, step: int, cotangent: TrainingState) -> tuple[TrainingState, Tensor, Tensor]:
        """Return the cotangents before the step: state, gradient, statistics."""
        before, after = self._graph(step)
        found = torch.autograd.grad(after, before, _parts(cotangent), materialize_grads=True)
        return _state(found[:-2]), found[-2], found[-1]

    def _graph(self, step: int) -> tuple[list[Tensor], list[Tensor]]:
        """Repeat the step, and return its inputs and outputs, with the graph."""
        noted = self._noted[step]
        values = [*_parts(noted.state), noted.gradient, noted.statistics]
        before = [value.detach().requires_grad_(True) for value in values]
        after = self._rule(step, _state(before[:-2]), before[-2], before[-1])
        return before, _parts(after)


def _parts(state: TrainingState) -> list[Tensor]:
    return [state.theta, state.running, *state.memory]


def _state(parts: Sequence[Tensor]) -> TrainingState:
    return TrainingState(parts[0], parts[1], tuple(parts[2:]))
