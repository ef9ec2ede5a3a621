"""Many MLPs at once, as differences to one: exact, and several times faster than one by one.

All models share the fixed set and the initialisation, so their first layers share one input: the
hidden scores of all models are one matrix product. The computation carries θᵢ(t) − θ₋(t) instead of
θᵢ(t), where θ₋ is the training in which the extra record has weight 0 (run once, in float64).
Rounding errors are then relative to the difference, which is the signal. The inputs are first
rotated to their own rank. The part of the target outside their span moves separately, as one number
per hidden unit.

Memory: the trajectory of θ₋ (steps × P float64), its tiles up to half a gigabyte, and for ``chunk``
models and ``tile`` records at a time a dozen arrays of chunk × width × tile numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from exhume.derivatives.activations import DIFFERENCED, softmax_difference
from exhume.derivatives.objective import Loss
from exhume.models.mlp import MLP
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.errors import InputError
from exhume.protocol.records import Records
from exhume.training.fixed_set_run import Nominal, RecordedStep, RecordTile
from exhume.training.network import Training
from exhume.training.optimisers import SGD
from exhume.training.simulator import Simulator, repeatable


def unfoldable(training: Training) -> str | None:
    """Return why this engine can't run a training, or None."""
    if not isinstance(training.network, MLP):
        return "only fully connected networks share their first layer's input"
    if training.network.activation not in DIFFERENCED:
        return f"exact differences are not implemented for {training.network.activation.value}"
    if not isinstance(training.optimiser, SGD):
        return "only gradient descent is linear in the gradient"
    if training.clipping is not None:
        return "clipping is not linear in the gradient"
    refinement = training.refinement
    return None if refinement is None else f"{refinement} is not simulated many models at a time"


class FoldedSimulator(Simulator):
    """Differences of an MLP's training, ``chunk`` models at a time."""

    def __init__(
        self,
        training: Training,
        fixed_set: Records,
        *,
        chunk: int = 64,
        tile: int = 1024,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        reason = unfoldable(training)
        if reason is not None:
            raise InputError(reason)
        self.training, self.fixed_set = repeatable(training), fixed_set
        self.chunk = chunk
        self.nominal = Nominal(self.training, fixed_set, dtype=dtype, tile=tile)

    @property
    def base(self) -> FloatArray:
        """Return θ (P,) of the training in which the record has weight 0."""
        return self.nominal.final

    def differences(self, x: Array, y: Array) -> FloatArray:
        """Return θ(xᵢ, yᵢ) − base (k, P), float64 (of float32 precision)."""
        self.training.require_shape(x)
        rows = np.asarray(x, dtype=np.float64).reshape(len(x), int(np.prod(x.shape[1:])))
        found = np.empty((len(rows), len(self.base)))
        with torch.no_grad():
            for start in range(0, len(rows), self.chunk):
                part = slice(start, start + self.chunk)
                found[part] = self._chunk(rows[part], np.asarray(y)[part])
        self.training.require_converged(bool(np.isfinite(found).all()))
        return found

    def _chunk(self, rows: FloatArray, y: Array) -> FloatArray:
        targets = Targets.of(self.nominal, rows, y)

        def add_gradient(step: RecordedStep, moved: Moved, velocity: Moved) -> None:
            for tile in step.tiles:
                self._add_tile(step, tile, moved, velocity)
            if step.with_target:
                add_target(self.nominal, step, targets, moved, velocity)

        moved = moved_along(self.nominal, len(rows), add_gradient)
        return moved.unrotated(self.nominal, targets.outside)

    def _add_tile(
        self, step: RecordedStep, tile: RecordTile, moved: Moved, gradient: Moved
    ) -> None:
        """Add the difference of some records' gradients to ``gradient``."""
        models, width, rank = moved.first.shape
        change = (moved.first.view(-1, rank) @ tile.inputs.T).view(models, width, -1)
        values: list[Tensor] = []
        rises: list[Tensor] = []
        totals: list[Tensor] = []
        for layer, own in enumerate(moved.deeper):
            value, rise = self.nominal.activation.differences(tile.z[layer], change)
            values.append(value)
            rises.append(rise)
            totals.append(own[:, :, :-1] + step.deeper[layer][0])
            change = folded(own, tile.h[layer]).baddbmm_(totals[layer], value)
        signal = self._loss_difference(tile, change)
        for layer in range(len(totals) - 1, -1, -1):
            own, total = moved.deeper[layer], gradient.deeper[layer]
            # δ′h′ᵀ − δhᵀ = δ′(h′ − h)ᵀ + (δ′ − δ)hᵀ; h has a row of ones for the bias.
            total.add_(folded(signal, tile.h[layer].T))
            delta = tile.delta[layer + 1]
            total[:, :, :-1].add_((signal + delta) @ values[layer].mT)
            signal = folded(own[:, :, :-1].mT, delta).baddbmm_(totals[layer].mT, signal)
            slope = rises[layer] + tile.slope[layer]
            signal.mul_(slope).addcmul_(rises[layer], tile.back[layer].expand_as(signal))
        gradient.first.view(-1, rank).addmm_(signal.view(models * width, -1), tile.inputs)

    def _loss_difference(self, tile: RecordTile, change: Tensor) -> Tensor:
        """Return the difference of the scores' signals, given a difference of scores."""
        if tile.p is None:
            return change.mul_(tile.share)
        return softmax_difference(tile.p, change, dim=1).mul_(tile.share)


def moved_along(
    nominal: Nominal, models: int, add_gradient: Callable[[RecordedStep, Moved, Moved], None]
) -> Moved:
    """Return the differences of ``models`` models from θ₋ after gradient descent with momentum.

    ``add_gradient`` gets a step, the models' differences at that step, and an array to which it
    adds the difference of their gradients. This array is the velocity itself, which saves one pass
    over memory.
    """
    moved, velocity = (Moved.zero(nominal, models) for _ in range(2))
    optimiser = nominal.training.optimiser
    assert isinstance(optimiser, SGD)
    for step in nominal.steps():
        velocity.multiply(optimiser.momentum)
        add_gradient(step, moved, velocity)
        if optimiser.weight_decay:
            velocity.add(moved, optimiser.weight_decay)
        moved.add(velocity, -optimiser.learning_rate)
    return moved


def add_target(
    nominal: Nominal, step: RecordedStep, targets: Targets, moved: Moved, gradient: Moved
) -> tuple[Tensor, Tensor, Tensor]:
    """Add each target's full gradient to its model's ``gradient``.

    Returns the first layer's scores (k, width), and the derivatives of the step's mean loss in the
    last layer's (k, outputs) and in the first layer's (k, width).
    """
    inside = targets.inside
    score = nominal.tensor(targets.rows @ step.first.T)
    score = score + (moved.first @ inside[:, :, None])[:, :, 0]
    score = score + moved.outside * targets.squared[:, None]
    first = score
    values: list[Tensor] = []
    rises: list[Tensor] = []
    totals: list[Tensor] = []
    for (weight, bias), own in zip(step.deeper, moved.deeper, strict=True):
        value, rise = nominal.activation.first(score)
        values.append(value)
        rises.append(rise)
        totals.append(own[:, :, :-1] + weight)
        score = (totals[-1] @ value[:, :, None])[:, :, 0] + bias[:, 0] + own[:, :, -1]
    if nominal.loss is Loss.CROSS_ENTROPY:
        score = torch.softmax(score, dim=1)
    error = signal = (score - targets.responses) / step.count
    for layer in range(len(totals) - 1, -1, -1):
        total = gradient.deeper[layer]
        total[:, :, :-1].add_(signal[:, :, None] * values[layer][:, None, :])
        total[:, :, -1].add_(signal)
        signal = (totals[layer].mT @ signal[:, :, None])[:, :, 0] * rises[layer]
    gradient.first.baddbmm_(signal[:, :, None], inside[:, None, :])
    gradient.outside.add_(signal)
    return first, error, signal


def folded(left: Tensor, right: Tensor) -> Tensor:
    """Return left (k, a, b) @ right (b, c) as one matrix product."""
    models, rows, inner = left.shape
    return (left.reshape(models * rows, inner) @ right).view(models, rows, -1)


@dataclass(frozen=True, eq=False)
class Targets:
    """Targets split into their part in the span of the fixed set's inputs and the rest."""

    rows: FloatArray
    outside: FloatArray
    inside: Tensor
    squared: Tensor
    responses: Tensor

    @classmethod
    def of(cls, nominal: Nominal, rows: FloatArray, y: Array) -> Targets:
        """Return records ``rows`` (k, features) with responses ``y``, split."""
        full = np.hstack([rows, np.ones((len(rows), 1))])
        inside = full @ nominal.basis
        outside = full - inside @ nominal.basis.T
        squared = (outside**2).sum(axis=1)
        # A remainder of rounding errors is not a direction.
        squared[squared < 1e-20 * (full**2).sum(axis=1)] = 0.0
        outside[squared == 0.0] = 0.0
        responses = nominal.tensor(nominal.encoded(y).T)
        return cls(full, outside, nominal.tensor(inside), nominal.tensor(squared), responses)


@dataclass(frozen=True, eq=False)
class Moved:
    """Parameters of k models as differences: the first layer rotated, the others unchanged.

    ``first`` (k, width, rank) is in the span of the inputs with their bias. ``outside`` (k, width)
    is along the target's part outside it. ``deeper`` is (k, outputs, inputs + 1), the bias last.
    """

    first: Tensor
    outside: Tensor
    deeper: list[Tensor]

    @classmethod
    def zero(cls, nominal: Nominal, models: int) -> Moved:
        """Return zero differences."""
        widths, rank = nominal.widths, nominal.basis.shape[1]
        deeper = [nominal.zeros(models, outs, ins + 1) for ins, outs in pairwise(widths[1:])]
        return cls(nominal.zeros(models, widths[1], rank), nominal.zeros(models, widths[1]), deeper)

    def multiply(self, factor: float) -> None:
        """Multiply by ``factor`` in place."""
        for mine in (self.first, self.outside, *self.deeper):
            mine.mul_(factor)

    def add(self, other: Moved, factor: float) -> None:
        """Add factor · other in place."""
        theirs = (other.first, other.outside, *other.deeper)
        for mine, their in zip((self.first, self.outside, *self.deeper), theirs, strict=True):
            mine.add_(their, alpha=factor)

    def unrotated(self, nominal: Nominal, outside: FloatArray) -> FloatArray:
        """Return differences (k, P) in the order of the network's own parameters."""
        first = self.first.double().cpu().numpy() @ nominal.basis.T
        first = first + self.outside.double().cpu().numpy()[:, :, None] * outside[:, None, :]
        layers = [first, *(layer.double().cpu().numpy() for layer in self.deeper)]
        parts = [p for one in layers for p in (one[:, :, :-1].reshape(len(one), -1), one[:, :, -1])]
        return np.hstack(parts)
