"""Training as a map of the one unknown record, with both products of its Jacobian."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from exhume.attacks.trajectory.observation import Observation


@dataclass
class Count:
    """Trainings run and products taken so far, for the attack's own account."""

    trainings: int = 0
    products: int = 0


class Unrolled(ABC):
    """record (R,) → what is observed (m,) after training with it.

    A record is its entries and then its label, as ``products`` says; ``initial`` (P,) is θ before
    the first step, and every vector has its precision and device.
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
        """θ (P,) after the same training with the record's loss weighted 0."""

    def trained(self, record: Tensor) -> Tensor:
        """Return θ (P,) after training with the record; nothing is kept."""
        self.count.trainings += 1
        return self._trained(record)

    def observed(self, record: Tensor) -> Tensor:
        """Train with the record and return what is observed, (m,)."""
        return self.observation.value(self.trained(record))

    @cached_property
    def base(self) -> Tensor:
        """θ (P,) after the same training with the record's loss weighted 0."""
        return self._weightless(self.initial.new_zeros(self.unknowns))


class Path(ABC):
    """One training with one record: where it went, and how it moves with the record."""

    unrolled: Unrolled
    record: Tensor
    theta: Tensor

    @abstractmethod
    def push(self, initial: Tensor, record: Tensor) -> Tensor:
        """Return how the trained θ moves when initial parameters (P,) and record (R,) move."""

    @abstractmethod
    def pull(self, cotangent: Tensor) -> tuple[Tensor, Tensor]:
        """Return the transposed products with initial parameters (P,) and record (R,)."""

    @cached_property
    def observed(self) -> Tensor:
        """What is observed of the trained parameters, (m,)."""
        return self.unrolled.observation.value(self.theta)

    def jvp(self, record: Tensor) -> Tensor:
        """Return how what is observed moves, (m,), when the record moves by ``record`` (R,)."""
        moved = self.push(torch.zeros_like(self.theta), record)
        return self.unrolled.observation.jvp(self.theta, moved)

    def vjp(self, cotangent: Tensor) -> Tensor:
        """Return the transposed product (R,) with ``cotangent`` (m,)."""
        return self.pull(self.unrolled.observation.vjp(self.theta, cotangent))[1]

    def amplification(self, rng: np.random.Generator, *, rounds: int = 3) -> float:
        """Return how much training stretches a small change of its start, in the worst direction.

        A few rounds of the power method from a random direction: a lower estimate. Around 1 the
        training forgets or keeps its start; far above 1 it is unstable, and hard to invert.
        """
        start = rng.standard_normal(len(self.theta))
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
