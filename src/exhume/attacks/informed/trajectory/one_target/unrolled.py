"""Training as a map of the one unknown record, with both products of its Jacobian.

It handles any training step by step; a loss family gives gradients and their products.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from exhume.attacks.informed.trajectory.observation import Observation
from exhume.attacks.informed.trajectory.one_target.rule_products import RuleProducts
from exhume.derivatives.step_products import Expansion, LossFamily, StepRecords
from exhume.training.loop import StepRule, TrainingState


@dataclass
class Count:
    """The numbers of trainings and products so far, for the attack's statistics."""

    trainings: int = 0
    products: int = 0


class Unrolled(ABC):
    """record (R,) → observed numbers (m,) after training with it.

    A record is its entries, then its label, as in ``products``. ``initial`` (P,) is θ before the
    first step; every vector has its precision and device. Training ends in θ followed by the
    running statistics of batch normalisation: (P + S,).
    """

    def __init__(self, observation: Observation, unknowns: int, initial: Tensor) -> None:
        self.observation, self.unknowns, self.initial = observation, unknowns, initial
        self.count = Count()

    @abstractmethod
    def path(self, record: Tensor) -> Path:
        """Train with the record and keep what the products need."""

    @abstractmethod
    def _trained(self, record: Tensor) -> Tensor: ...

    @abstractmethod
    def _weightless(self, record: Tensor) -> Tensor:
        """The end (P + S,) of the same training with the record's loss weighted 0."""

    def trained(self, record: Tensor) -> Tensor:
        """Return the end (P + S,) of training with the record; store nothing."""
        self.count.trainings += 1
        return self._trained(record)

    def observed(self, record: Tensor) -> Tensor:
        """Train with the record and return the observed numbers, (m,)."""
        return self.observation.value(self.trained(record))

    @cached_property
    def base(self) -> Tensor:
        """The end (P + S,) of the same training with the record's loss weighted 0."""
        return self._weightless(self.blank)

    @cached_property
    def blank(self) -> Tensor:
        """A record (R,) in the target's place that has no weight."""
        return self.initial.new_zeros(self.unknowns)


class Path(ABC):
    """One training with one record: its end, and the derivatives with respect to the record."""

    unrolled: Unrolled
    record: Tensor
    theta: Tensor
    """The end of training (P + S,): parameters, and running statistics if there are any."""

    @abstractmethod
    def push(self, initial: Tensor, record: Tensor) -> Tensor:
        """Return the trained θ's change for changes of initial parameters (P,) and record (R,)."""

    @abstractmethod
    def pull(self, cotangent: Tensor) -> tuple[Tensor, Tensor]:
        """Return the transposed products with initial parameters (P,) and record (R,)."""

    @cached_property
    def observed(self) -> Tensor:
        """The observed numbers of the trained parameters, (m,)."""
        return self.unrolled.observation.value(self.theta)

    def jvp(self, record: Tensor) -> Tensor:
        """Return their change (m,) for a change ``record`` (R,) of the record."""
        moved = self.push(torch.zeros_like(self.unrolled.initial), record)
        return self.unrolled.observation.jvp(self.theta, moved)

    def vjp(self, cotangent: Tensor) -> Tensor:
        """Return the transposed product (R,) with ``cotangent`` (m,)."""
        return self.pull(self.unrolled.observation.vjp(self.theta, cotangent))[1]

    def amplification(self, rng: np.random.Generator, *, rounds: int = 3) -> float:
        """Return the factor by which training lengthens a small change of its start, at worst.

        It is a lower estimate by a few rounds of the power method from a random direction. Near 1,
        training forgets or keeps its start. Far above 1, training is unstable and hard to invert.
        """
        start = rng.standard_normal(len(self.unrolled.initial))
        tangent = torch.as_tensor(start, dtype=self.theta.dtype, device=self.theta.device)
        still = torch.zeros_like(self.record)
        length = 0.0
        for _ in range(rounds):
            moved = self.push(tangent / tangent.norm(), still)
            length = float(moved.norm())
            if not math.isfinite(length) or length == 0.0:
                break
            tangent = self.pull(moved / length)[0]
        return length


MEMORY_LIMIT = 2**30
"""The memory of a path for its steps; later steps are computed again when needed."""


class StepwiseUnrolled(Unrolled):
    """Training from ``initial`` (P,) over ``batches`` of the known records and one more.

    Memory: a path keeps θ and the optimiser's state of every step. It keeps what the products need
    for as many steps as fit ``memory_limit`` bytes.
    """

    def __init__(
        self,
        losses: LossFamily,
        initial: Tensor,
        rule: StepRule,
        batches: Sequence[StepRecords],
        observation: Observation,
        *,
        unknowns: int,
        memory_limit: int = MEMORY_LIMIT,
    ) -> None:
        super().__init__(observation, unknowns, initial)
        self.losses, self.rule, self.batches = losses, rule, batches
        self.memory_limit = memory_limit

    @cached_property
    def blank(self) -> Tensor:
        """A record (R,) in the target's place that has no weight."""
        return self.losses.blank(self.unknowns)

    def path(self, record: Tensor) -> Path:
        """Train with the record and keep what the products need."""
        self.count.trainings += 1
        return StepwisePath(self, record)

    def split(self, both: Tensor) -> tuple[Tensor, Tensor]:
        """Return the parts of θ (P,) and of batch statistics (S,)."""
        return both[: len(self.initial)], both[len(self.initial) :]

    def _trained(self, record: Tensor) -> Tensor:
        return self._run(record, self.batches)

    def _weightless(self, record: Tensor) -> Tensor:
        return self._run(record, [self.losses.without_record(batch) for batch in self.batches])

    def _run(self, record: Tensor, batches: Sequence[StepRecords]) -> Tensor:
        place = self.rule.start(self.initial)
        loss = self.losses.with_record(record)
        for step, batch in enumerate(batches):
            place = self.rule(step, place, *self.split(loss.gradient(place.theta, batch)))
        return torch.cat([place.theta, place.running])


class StepwisePath(Path):
    """One training with one record, a step's expansion at a time."""

    def __init__(self, unrolled: StepwiseUnrolled, record: Tensor) -> None:
        self.unrolled: StepwiseUnrolled = unrolled
        self.record = record
        self._loss = unrolled.losses.with_record(record)
        self._thetas: list[Tensor] = []
        self._kept: list[Expansion | None] = []
        self._rule = RuleProducts(unrolled.rule)
        place = unrolled.rule.start(unrolled.initial)
        room = unrolled.memory_limit
        for step, batch in enumerate(unrolled.batches):
            here = self._loss.expand(place.theta, batch)
            room -= here.size
            self._thetas.append(place.theta)
            self._kept.append(here if room >= 0 else None)
            moved = unrolled.split(here.gradient)
            self._rule.note(place, *moved)
            place = unrolled.rule(step, place, *moved)
        self.theta = torch.cat([place.theta, place.running])

    def push(self, initial: Tensor, record: Tensor) -> Tensor:
        """Return the change of the end of training for changes of initial parameters and record."""
        self.unrolled.count.products += 1
        tangent = self._rule.start(initial)
        for step in range(len(self._thetas)):
            moved = self._expansion(step).times(tangent.theta, record)
            tangent = self._rule.push(step, tangent, *self.unrolled.split(moved))
        return torch.cat([tangent.theta, tangent.running])

    def pull(self, cotangent: Tensor) -> tuple[Tensor, Tensor]:
        """Return the transposed products with initial parameters (P,) and record (R,)."""
        self.unrolled.count.products += 1
        place = self._rule.end(*self.unrolled.split(cotangent))
        record = torch.zeros_like(self.record)
        for step in reversed(range(len(self._thetas))):
            place, *slopes = self._rule.pull(step, place)
            parameters, own = self._expansion(step).transposed_times(torch.cat(slopes))
            place = TrainingState(place.theta + parameters, place.running, place.memory)
            record = record + own
        return place.theta, record

    def _expansion(self, step: int) -> Expansion:
        kept = self._kept[step]
        if kept is not None:
            return kept
        return self._loss.expand(self._thetas[step], self.unrolled.batches[step])
