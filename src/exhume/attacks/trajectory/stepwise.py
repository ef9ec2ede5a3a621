"""Any training step by step: gradients and their products from a family of losses."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from exhume.attacks.trajectory.observation import Observation
from exhume.attacks.trajectory.optimiser_products import Moves, moves_of
from exhume.attacks.trajectory.products import Batch, Expansion, LossFamily
from exhume.attacks.trajectory.unrolled import Path, Unrolled
from exhume.training.optimisers import Optimiser

MEMORY_LIMIT = 2**30
"""Bytes that a path may keep of its steps; the steps beyond it are computed again when needed."""


class StepwiseUnrolled(Unrolled):
    """Training from ``initial`` (P,) over ``batches`` of ``known`` records and one more.

    Memory: a path keeps θ of every step, and what its products need of as many steps as fit
    ``memory_limit`` bytes.
    """

    def __init__(
        self,
        losses: LossFamily,
        initial: Tensor,
        optimiser: Optimiser,
        batches: Sequence[Batch],
        observation: Observation,
        *,
        known: int,
        unknowns: int,
        memory_limit: int = MEMORY_LIMIT,
    ) -> None:
        super().__init__(observation, unknowns, initial)
        self.losses, self.optimiser, self.batches = losses, optimiser, batches
        self.known, self.memory_limit = known, memory_limit

    def path(self, record: Tensor) -> Path:
        """Train with the record and keep what the products need."""
        self.count.trainings += 1
        return StepwisePath(self, record)

    def _trained(self, record: Tensor) -> Tensor:
        return self._run(record, self.batches)

    def _weightless(self, record: Tensor) -> Tensor:
        known = [None if b.rows is None else b.rows[b.rows < self.known] for b in self.batches]
        pairs = zip(self.batches, known, strict=True)
        return self._run(record, [Batch(rows, 0.0, b.count) for b, rows in pairs])

    def _run(self, record: Tensor, batches: Sequence[Batch]) -> Tensor:
        theta, state = self.initial, self.optimiser.start(self.initial)
        loss = self.losses.with_record(record)
        for batch in batches:
            gradient = loss.gradient(theta, batch)
            theta, state = self.optimiser.step(theta, gradient, state)
        return theta


class StepwisePath(Path):
    """One training with one record, a step's expansion at a time."""

    def __init__(self, unrolled: StepwiseUnrolled, record: Tensor) -> None:
        self.unrolled, self.record = unrolled, record
        self._loss = unrolled.losses.with_record(record)
        self._batches = unrolled.batches
        self._thetas: list[Tensor] = []
        self._kept: list[Expansion | None] = []
        self._moves: Moves = moves_of(unrolled.optimiser)
        theta, state = unrolled.initial, unrolled.optimiser.start(unrolled.initial)
        room = unrolled.memory_limit
        for batch in unrolled.batches:
            here = self._loss.expand(theta, batch)
            room -= here.size
            self._thetas.append(theta)
            self._kept.append(here if room >= 0 else None)
            following, state = unrolled.optimiser.step(theta, here.gradient, state)
            self._moves.note(theta, here.gradient, state)
            theta = following
        self.theta = theta

    def push(self, initial: Tensor, record: Tensor) -> Tensor:
        """Return how the trained θ moves when initial parameters and record move."""
        self.unrolled.count.products += 1
        tangent, state = initial, self._moves.start(initial)
        for step in range(len(self._thetas)):
            slope = self._expansion(step).times(tangent, record)
            change, state = self._moves.push(step, slope, tangent, state)
            tangent = tangent + change
        return tangent

    def pull(self, cotangent: Tensor) -> tuple[Tensor, Tensor]:
        """Return the transposed products with initial parameters (P,) and record (R,)."""
        self.unrolled.count.products += 1
        state = self._moves.start(cotangent)
        record = torch.zeros_like(self.record)
        for step in reversed(range(len(self._thetas))):
            slope, decayed, state = self._moves.pull(step, cotangent, state)
            parameters, own = self._expansion(step).transposed_times(slope)
            cotangent = cotangent + parameters + decayed
            record = record + own
        return cotangent, record

    def _expansion(self, step: int) -> Expansion:
        kept = self._kept[step]
        if kept is not None:
            return kept
        return self._loss.expand(self._thetas[step], self._batches[step])
