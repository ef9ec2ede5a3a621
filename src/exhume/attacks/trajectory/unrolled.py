"""Training as a map of the one unknown record, with both products of its Jacobian."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from exhume.arrays import Array
from exhume.attacks.trajectory.bends import BENDS
from exhume.attacks.trajectory.observation import Observation
from exhume.attacks.trajectory.optimiser_products import Moves, moves_of
from exhume.attacks.trajectory.perceptron import PerceptronFamily
from exhume.attacks.trajectory.products import (
    AutogradFamily,
    Batch,
    ClippedFamily,
    Expansion,
    Known,
    LossFamily,
)
from exhume.models.mlp import MLP
from exhume.records import Records
from exhume.training.network import Training
from exhume.training.objective import Objective
from exhume.training.optimisers import Optimiser
from exhume.training.simulator import repeatable

Precision = Literal["float32", "float64"]
MEMORY_LIMIT = 2**30
"""Bytes that a path may keep of its steps; the steps beyond it are computed again when needed."""


@dataclass(frozen=True, eq=False)
class Unrolled:
    """record (R,) → what is observed (m,) after training from ``initial`` (P,) over ``batches``.

    A record is its entries and then its label, as ``products`` says. Memory: a path keeps θ of
    every step and what its products need of as many steps as fit ``memory_limit`` bytes.
    """

    losses: LossFamily
    initial: Tensor
    optimiser: Optimiser
    batches: Sequence[Batch]
    observation: Observation
    known: int
    unknowns: int
    memory_limit: int = MEMORY_LIMIT
    simulations: list[int] = field(default_factory=lambda: [0, 0])
    """Trainings run and products taken so far, for the attack's own account."""

    def path(self, record: Tensor) -> Path:
        """Train with the record and keep what the products need."""
        self.simulations[0] += 1
        return Path(self, record)

    def observed(self, record: Tensor) -> Tensor:
        """Train with the record and return what is observed, (m,); nothing is kept."""
        return self.observation.value(self.trained(record))

    def trained(self, record: Tensor) -> Tensor:
        """Return θ (P,) after training with the record."""
        self.simulations[0] += 1
        return self._run(record, self.batches)

    @cached_property
    def base(self) -> Tensor:
        """θ (P,) after the same training with the record's loss weighted 0."""
        blank = self.initial.new_zeros(self.unknowns)
        known = [None if b.rows is None else b.rows[b.rows < self.known] for b in self.batches]
        pairs = zip(self.batches, known, strict=True)
        return self._run(blank, [Batch(rows, 0.0, b.count) for b, rows in pairs])

    def _run(self, record: Tensor, batches: Sequence[Batch]) -> Tensor:
        theta, state = self.initial, self.optimiser.start(self.initial)
        loss = self.losses.with_record(record)
        for batch in batches:
            gradient = loss.gradient(theta, batch)
            theta, state = self.optimiser.step(theta, gradient, state)
        return theta


class Path:
    """One training with one record: where it went, and how it moves with the record."""

    def __init__(self, unrolled: Unrolled, record: Tensor) -> None:
        self.unrolled, self.record = unrolled, record
        self._loss = unrolled.losses.with_record(record)
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

    def push(self, initial: Tensor, record: Tensor) -> Tensor:
        """Return how the trained θ moves when initial parameters and record move."""
        self.unrolled.simulations[1] += 1
        tangent, state = initial, self._moves.start(initial)
        for step in range(len(self._thetas)):
            slope = self._expansion(step).times(tangent, record)
            change, state = self._moves.push(step, slope, tangent, state)
            tangent = tangent + change
        return tangent

    def pull(self, cotangent: Tensor) -> tuple[Tensor, Tensor]:
        """Return the transposed products with initial parameters (P,) and record (R,)."""
        self.unrolled.simulations[1] += 1
        state = self._moves.start(cotangent)
        record = torch.zeros_like(self.record)
        for step in reversed(range(len(self._thetas))):
            slope, decayed, state = self._moves.pull(step, cotangent, state)
            parameters, own = self._expansion(step).transposed_times(slope)
            cotangent = cotangent + parameters + decayed
            record = record + own
        return cotangent, record

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

    def _expansion(self, step: int) -> Expansion:
        kept = self._kept[step]
        if kept is not None:
            return kept
        return self._loss.expand(self._thetas[step], self.unrolled.batches[step])


def unroll(
    training: Training,
    fixed_set: Records,
    observation: Observation,
    *,
    objective: Objective,
    target_weight: float = 1.0,
    memory_limit: int = MEMORY_LIMIT,
) -> Unrolled:
    """Return the training on ``fixed_set`` and one more, last record as a map of that record.

    In the precision and on the device of ``objective``. Raises InputError where the training can't
    be repeated; the noise of DP-GD is left out.
    """
    training = repeatable(training)
    rng = np.random.default_rng(0)  # Never drawn from: start and order of the batches are known.
    initial = objective.flat(training.initial.draw(training.network, rng))
    size = math.prod(fixed_set.record_shape) + training.network.outputs
    return Unrolled(
        losses_of(training, objective, known_tensors(training, objective, fixed_set)),
        initial,
        training.optimiser,
        batches_of(training, len(fixed_set), target_weight, objective.device),
        observation,
        len(fixed_set),
        size,
        memory_limit,
    )


def known_tensors(training: Training, objective: Objective, fixed_set: Records) -> Known:
    """Return the fixed set as tensors, its labels as the loss takes them."""
    count = len(fixed_set)
    weight = np.ones(count) if fixed_set.weight is None else fixed_set.weight
    labels = label_vectors(training, fixed_set.labels)
    return Known(objective.tensor(fixed_set.x), objective.tensor(labels), objective.tensor(weight))


def label_vectors(training: Training, labels: Array) -> Array:
    """Return labels (n,) as (n, outputs): 1 at the class, or the response itself."""
    responses = training.responses(np.asarray(labels))
    if training.classes is None:
        return responses[:, None]
    return np.eye(len(training.classes))[responses]


def losses_of(training: Training, objective: Objective, known: Known) -> LossFamily:
    """Return the fastest products there are for this training."""
    if training.clipping is not None:
        return ClippedFamily(objective, known, training.clipping.norm)
    network = training.network
    if not isinstance(network, MLP) or network.activation not in BENDS:
        return AutogradFamily(objective, known)
    widths = (math.prod(network.record_shape), *network.hidden, network.outputs)
    flat = Known(known.x.reshape(len(known.x), -1), known.labels, known.weight)
    return PerceptronFamily(widths, network.activation, objective.loss, flat)


def batches_of(
    training: Training, known: int, target_weight: float, device: torch.device
) -> list[Batch]:
    """Return every step's batch of ``known`` records and the target after them."""
    found = []
    for chosen in training.steps(known + 1, np.random.default_rng(0)):
        if chosen is None:
            found.append(Batch(None, target_weight, known + 1))
            continue
        # The record stands last in its batch: that is where the products look for it.
        rows = torch.as_tensor(np.sort(chosen), device=device)
        present = known in chosen
        count = len(chosen)
        if training.clipping is not None and training.batches is not None:
            count = min(known + 1, training.batches.size)
        found.append(Batch(rows, target_weight if present else 0.0, count))
    return found
