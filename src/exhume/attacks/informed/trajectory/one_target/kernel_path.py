"""A fully connected network under gradient descent, with its first layer as a sum over records.

Every gradient of the first layer is Σ signal ⊗ input. Its weights are therefore always s·W₀ + αX,
with the training inputs X and α (width, n + 1). Products with the inputs become products with the
kernel K = XXᵀ, and no step needs a vector as long as the parameters. With a few hundred records
this is an order of magnitude faster than automatic differentiation. Exact arithmetic would give the
same result as the plain loop; only rounding differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from exhume.attacks.informed.trajectory.observation import Observation
from exhume.attacks.informed.trajectory.one_target.unrolled import Path, Unrolled
from exhume.derivatives.perceptron_numpy import Members, NarrowLayers, Signals
from exhume.derivatives.step_products import Known, StepRecords
from exhume.protocol.arrays import Array, FloatArray
from exhume.training.optimisers import SGD

_Step: TypeAlias = tuple[slice | Array, StepRecords]
"""The members of a step: their rows, and their weights."""


@dataclass(frozen=True, eq=False)
class _StepParameters:
    """θ between two steps: W₁ = scale·W₀ + sums·X, and the other parameters as one vector."""

    scale: float
    sums: FloatArray
    rest: FloatArray


class KernelUnrolled(Unrolled):
    """The training of a perceptron by SGD, in NumPy; a path keeps the signals of all its steps.

    Memory of a path: 4·(n + 1)·(hidden units + outputs) numbers per step, and K once.
    """

    def __init__(
        self,
        layers: NarrowLayers,
        known: Known,
        initial: Tensor,
        optimiser: SGD,
        batches: Sequence[StepRecords],
        observation: Observation,
    ) -> None:
        super().__init__(observation, known.x.shape[1] + known.labels.shape[1], initial)
        self.layers, self.optimiser = layers, optimiser
        self.x, self.labels, self.weight = (
            part.cpu().numpy() for part in (known.x, known.labels, known.weight)
        )
        split = layers.widths[1] * layers.widths[0]
        flat = initial.cpu().numpy()
        self.first, self.rest = flat[:split].reshape(layers.widths[1], -1), flat[split:]
        self.products = self.x @ self.x.T
        self.scores = self.first @ self.x.T
        self.steps: list[_Step] = [
            (slice(None) if b.rows is None else b.rows.cpu().numpy(), b) for b in batches
        ]

    def path(self, record: Tensor) -> Path:
        """Train with the record and keep what the products need."""
        self.count.trainings += 1
        return KernelPath(self, record, self.steps)

    def _trained(self, record: Tensor) -> Tensor:
        return KernelPath(self, record, self.steps, keep=False).theta

    def _weightless(self, record: Tensor) -> Tensor:
        count = len(self.x)
        steps = [
            (
                rows if isinstance(rows, slice) else rows[rows < count],
                StepRecords(b.rows, 0.0, b.count),
            )
            for rows, b in self.steps
        ]
        return KernelPath(self, record, steps, keep=False).theta


class KernelPath(Path):
    """One training with one record."""

    def __init__(
        self, unrolled: KernelUnrolled, record: Tensor, steps: Sequence[_Step], *, keep: bool = True
    ) -> None:
        self.unrolled, self.record, self.fixed = unrolled, record, unrolled
        self.steps = steps
        own = record.detach().cpu().numpy()
        self.inputs = unrolled.layers.widths[0]
        self.x, self.label = own[: self.inputs], own[self.inputs :]
        self._bordered()
        self.states: list[_StepParameters] = []
        self.signals: list[Signals] = []
        self.last = self._run(keep)
        first = self.last.scale * unrolled.first + self.last.sums @ self.rows
        whole = np.concatenate([first.ravel(), self.last.rest])
        self.theta = torch.as_tensor(whole, device=record.device)

    def _bordered(self) -> None:
        """Add the record to the inputs, to their kernel and to their first scores."""
        fixed = self.fixed
        self.rows = np.concatenate([fixed.x, self.x[None]])
        border = self.rows @ self.x
        count = len(self.rows)
        self.kernel = np.empty((count, count), fixed.x.dtype)
        self.kernel[:-1, :-1] = fixed.products
        self.kernel[-1] = self.kernel[:, -1] = border
        self.start = np.concatenate([fixed.scores, (fixed.first @ self.x)[:, None]], axis=1)
        self.everyone = Members.of(
            np.concatenate([fixed.labels, self.label[None]]), fixed.layers.entropic
        )
        self.weights = np.append(fixed.weight, np.zeros(1, fixed.weight.dtype))

    def _run(self, keep: bool) -> _StepParameters:
        fixed, own = self.fixed, self.fixed.optimiser
        scale, pace = 1.0, 0.0
        sums = np.zeros_like(self.start)
        speed, rest = np.zeros_like(sums), fixed.rest.copy()
        drift = np.zeros_like(rest)
        for rows, batch in self.steps:
            here = (
                _StepParameters(scale, sums.copy(), rest.copy())
                if keep
                else _StepParameters(scale, sums, rest)
            )
            z = sums @ self.kernel[:, rows] + scale * self.start[:, rows]
            members = self._members(rows, batch)
            signals = Signals(fixed.layers, here.rest, z, members)
            if keep:
                self.states.append(here)
                self.signals.append(signals)
            speed *= own.momentum
            drift *= own.momentum
            pace *= own.momentum
            speed[:, rows] += signals.first
            drift += signals.gradient
            if own.weight_decay:
                speed += own.weight_decay * sums
                drift += own.weight_decay * rest
                pace += own.weight_decay * scale
            sums -= own.learning_rate * speed
            rest -= own.learning_rate * drift
            scale -= own.learning_rate * pace
        return _StepParameters(scale, sums, rest)

    def _members(self, rows: slice | Array, batch: StepRecords) -> Members:
        if isinstance(rows, slice) and self.signals:
            return self.signals[0].members
        weight = self.weights[rows].copy()
        if batch.record_weight:
            weight[-1] = batch.record_weight
        return self.everyone.take(rows, weight / batch.count, batch.record_weight / batch.count)

    @cached_property
    def _cuts(self) -> list[FloatArray]:
        """The kernel's columns of each step's batch; one object if it is all records."""
        cuts: list[FloatArray] = []
        for rows, _ in self.steps:
            cuts.append(self.kernel if isinstance(rows, slice) else self.kernel[:, rows])
        return cuts

    def push(self, initial: Tensor, record: Tensor) -> Tensor:
        """Return the change of the trained θ for a change of initial parameters and record."""
        self.unrolled.count.products += 1
        fixed, own = self.fixed, self.fixed.optimiser
        move, label, first, rest = self._split(record, initial)
        across = self.rows @ move
        start = first @ self.rows.T
        onto = fixed.first @ move
        sums = np.zeros_like(self.start)
        speed, drift = np.zeros_like(sums), np.zeros_like(rest)
        for step, (rows, batch) in enumerate(self.steps):
            state = self.states[step]
            z = sums @ self._cuts[step] + state.scale * start[:, rows]
            z += state.sums[:, -1:] * across[rows]
            if batch.record_weight:
                z[:, -1] += state.scale * onto + state.sums @ across
            moved = self.signals[step].product(state.rest, z, rest, label)
            speed *= own.momentum
            drift *= own.momentum
            speed[:, rows] += moved.first
            drift += moved.gradient
            if own.weight_decay:
                speed += own.weight_decay * sums
                drift += own.weight_decay * rest
            sums -= own.learning_rate * speed
            rest -= own.learning_rate * drift
        weights = self.last.scale * first + sums @ self.rows
        weights += np.outer(self.last.sums[:, -1], move)
        return self._joined(weights, rest)

    def pull(self, cotangent: Tensor) -> tuple[Tensor, Tensor]:
        """Return the transposed products with initial parameters (P,) and record (R,)."""
        self.unrolled.count.products += 1
        fixed, own = self.fixed, self.fixed.optimiser
        flat = cotangent.detach().cpu().numpy()
        first = flat[: fixed.first.size].reshape(fixed.first.shape)
        rest = flat[fixed.first.size :].copy()
        sums = first @ self.rows.T
        record = self.last.sums[:, -1] @ first
        speed, drift = np.zeros_like(sums), np.zeros_like(rest)
        across, onto = np.zeros_like(self.kernel[0]), np.zeros_like(first[:, 0])
        label, start = np.zeros_like(self.label), np.zeros_like(sums)
        for step in reversed(range(len(self.steps))):
            rows, batch = self.steps[step]
            state = self.states[step]
            speed -= own.learning_rate * sums
            drift -= own.learning_rate * rest
            moved = self.signals[step].product(state.rest, speed[:, rows].copy(), drift, None)
            signal = moved.first
            sums += signal @ self._cuts[step].T
            rest += moved.gradient
            across[rows] += state.sums[:, -1] @ signal
            start[:, rows] += state.scale * signal
            if batch.record_weight:
                across += signal[:, -1] @ state.sums
                onto += state.scale * signal[:, -1]
                label += moved.label
            if own.weight_decay:
                sums += own.weight_decay * speed
                rest += own.weight_decay * drift
            speed *= own.momentum
            drift *= own.momentum
        record = record + across @ self.rows + onto @ fixed.first
        weights = self.last.scale * first + start @ self.rows
        whole = torch.as_tensor(np.concatenate([record, label]), device=cotangent.device)
        return self._joined(weights, rest), whole

    def _split(
        self, record: Tensor, initial: Tensor
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        own, flat = record.detach().cpu().numpy(), initial.detach().cpu().numpy()
        fixed = self.fixed.first
        first = flat[: fixed.size].reshape(fixed.shape)
        return own[: self.inputs], own[self.inputs :], first, flat[fixed.size :].copy()

    def _joined(self, first: FloatArray, rest: FloatArray) -> Tensor:
        whole = np.concatenate([first.ravel(), rest])
        return torch.as_tensor(whole, device=self.record.device)
