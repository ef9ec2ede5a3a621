"""Many MLPs at once, as differences to one: exact, and several times faster than a model a time.

All models share the fixed set and the initialisation, so their first layers share one input: the
hidden scores of all of them are one matrix product. What is carried along is not θᵢ(t) but
θᵢ(t) − θ₋(t), where θ₋ is the training in which the extra record counts nothing (run once, in
float64): rounding errors are then relative to the difference, which is the signal. The inputs are
rotated to their own rank first; the part of the target outside their span moves on its own, as one
number a hidden unit.

Memory: the trajectory of θ₋ (steps × P float64), its tiles up to half a gigabyte, and for ``chunk``
models and ``tile`` records at a time a dozen arrays of chunk × width × tile numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from exhume.arrays import Array, FloatArray
from exhume.errors import InputError
from exhume.models.mlp import MLP
from exhume.records import Records
from exhume.training.network import Training
from exhume.training.nominal import Nominal, Step, Tile
from exhume.training.objective import Loss
from exhume.training.optimisers import SGD
from exhume.training.simulator import Simulator, repeatable
from exhume.training.slopes import SLOPES, softmax_difference


def unfoldable(training: Training) -> str | None:
    """Say why this engine can't run a training, or return None."""
    if not isinstance(training.network, MLP):
        return "only fully connected networks share their first layer's input"
    if training.network.activation not in SLOPES:
        return f"no exact differences are known for {training.network.activation.value}"
    if not isinstance(training.optimiser, SGD):
        return "only gradient descent is linear in the gradient"
    if training.clipping is not None:
        return "clipping is not linear in the gradient"
    return None


class FoldedSimulator(Simulator):
    """Differences of an MLP's training, ``chunk`` models at a time."""

    def __init__(
        self,
        training: Training,
        fixed_set: Records,
        *,
        chunk: int = 32,
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
        """Return θ (P,) of the training in which the record counts nothing."""
        return self.nominal.final

    def differences(self, x: Array, y: Array) -> FloatArray:
        """Return θ(xᵢ, yᵢ) − base (k, P), float64 (of float32 precision)."""
        rows = np.asarray(x, dtype=np.float64).reshape(len(x), int(np.prod(x.shape[1:])))
        found = np.empty((len(rows), len(self.base)))
        with torch.no_grad():
            for start in range(0, len(rows), self.chunk):
                part = slice(start, start + self.chunk)
                found[part] = self._chunk(rows[part], np.asarray(y)[part])
        return found

    def _chunk(self, rows: FloatArray, y: Array) -> FloatArray:
        targets = _Targets.of(self.nominal, rows, y)
        moved, velocity = (Moved.zero(self.nominal, len(rows)) for _ in range(2))
        optimiser = self.training.optimiser
        assert isinstance(optimiser, SGD)
        for step in self.nominal.steps():
            gradient = Moved.zero(self.nominal, len(rows))
            for tile in step.tiles:
                self._add_tile(step, tile, moved, gradient)
            if step.with_target:
                self._add_target(step, targets, moved, gradient)
            if optimiser.weight_decay:
                gradient.add(moved, optimiser.weight_decay)
            velocity.add(gradient, 1.0, keep=optimiser.momentum)
            moved.add(velocity, -optimiser.learning_rate)
        return moved.unrotated(self.nominal, targets.outside)

    def _add_tile(self, step: Step, tile: Tile, moved: Moved, gradient: Moved) -> None:
        """Add the difference of some records' gradients to ``gradient``."""
        models, width, rank = moved.first.shape
        flat = moved.first.view(models * width, rank)
        change = (flat @ tile.inputs.T).view(models, width, len(tile.inputs))
        values: list[Tensor] = []
        rises: list[Tensor] = []
        slopes = self.nominal.slopes
        for layer, (weight, _) in enumerate(step.deeper):
            value, rise = slopes.differences(tile.z[layer], change)
            values.append(value)
            rises.append(rise)
            own, bias = moved.deeper[layer]
            change = torch.baddbmm(bias[:, :, None] + own @ tile.h[layer], weight + own, value)
        if tile.p is not None:
            change = softmax_difference(tile.p, change, dim=1)
        signal = change * tile.share
        for layer in range(len(step.deeper) - 1, -1, -1):
            own, _ = moved.deeper[layer]
            total = gradient.deeper[layer]
            total[0].baddbmm_(signal, (tile.h[layer] + values[layer]).mT)
            total[0].add_(tile.delta[layer + 1] @ values[layer].mT)
            total[1].add_(signal.sum(dim=2))
            back = torch.baddbmm(
                own.mT @ tile.delta[layer + 1], (step.deeper[layer][0] + own).mT, signal
            )
            signal = back.mul_(tile.slope[layer] + rises[layer])
            signal.addcmul_(rises[layer], tile.back[layer].expand_as(signal))
        flat_signal = signal.reshape(models * width, len(tile.inputs))
        gradient.first.view(models * width, rank).addmm_(flat_signal, tile.inputs)

    def _add_target(self, step: Step, targets: _Targets, moved: Moved, gradient: Moved) -> None:
        """Add each target's own gradient, whole, to its model's ``gradient``."""
        slopes, start = self.nominal.slopes, self.nominal.tensor(targets.rows @ step.first.T)
        score = start + torch.einsum("kwr,kr->kw", moved.first, targets.inside)
        score = score + moved.outside * targets.squared[:, None]
        values: list[Tensor] = []
        rises: list[Tensor] = []
        for (weight, bias), (own, own_bias) in zip(step.deeper, moved.deeper, strict=True):
            value, rise = slopes.at(score)
            values.append(value)
            rises.append(rise)
            score = torch.einsum("koi,ki->ko", weight + own, value) + bias + own_bias
        if self.nominal.loss is Loss.CROSS_ENTROPY:
            score = torch.softmax(score, dim=1)
        signal = (score - targets.responses) / step.count
        for layer in range(len(step.deeper) - 1, -1, -1):
            total = gradient.deeper[layer]
            total[0].add_(signal[:, :, None] * values[layer][:, None, :])
            total[1].add_(signal)
            weight = step.deeper[layer][0] + moved.deeper[layer][0]
            signal = torch.einsum("koi,ko->ki", weight, signal) * rises[layer]
        gradient.first.add_(signal[:, :, None] * targets.inside[:, None, :])
        gradient.outside.add_(signal)


@dataclass(frozen=True, eq=False)
class _Targets:
    """Targets split into the span of the fixed set's inputs and what is outside it."""

    rows: FloatArray
    outside: FloatArray
    inside: Tensor
    squared: Tensor
    responses: Tensor

    @classmethod
    def of(cls, nominal: Nominal, rows: FloatArray, y: Array) -> _Targets:
        full = np.hstack([rows, np.ones((len(rows), 1))])
        inside = full @ nominal.basis
        outside = full - inside @ nominal.basis.T
        squared = (outside**2).sum(axis=1)
        # A remainder made of rounding errors is no direction.
        squared[squared < 1e-20 * (full**2).sum(axis=1)] = 0.0
        outside[squared == 0.0] = 0.0
        responses = nominal.tensor(nominal.encoded(y).T)
        return cls(full, outside, nominal.tensor(inside), nominal.tensor(squared), responses)


@dataclass(frozen=True, eq=False)
class Moved:
    """Parameters of k models as differences: the first layer rotated, the others as they are.

    ``first`` (k, width, rank) in the span of the inputs with their bias; ``outside`` (k, width)
    along what of the target is outside it.
    """

    first: Tensor
    outside: Tensor
    deeper: list[tuple[Tensor, Tensor]]

    @classmethod
    def zero(cls, nominal: Nominal, models: int) -> Moved:
        """Return no difference at all."""
        widths, rank = nominal.widths, nominal.basis.shape[1]
        deeper = [
            (nominal.zeros(models, outputs, inputs), nominal.zeros(models, outputs))
            for inputs, outputs in pairwise(widths[1:])
        ]
        return cls(nominal.zeros(models, widths[1], rank), nominal.zeros(models, widths[1]), deeper)

    def tensors(self) -> list[Tensor]:
        """Return every array, always in the same order."""
        return [self.first, self.outside, *(array for pair in self.deeper for array in pair)]

    def add(self, other: Moved, factor: float, *, keep: float = 1.0) -> None:
        """Become keep · self + factor · other."""
        for mine, theirs in zip(self.tensors(), other.tensors(), strict=True):
            if keep != 1.0:
                mine.mul_(keep)
            mine.add_(theirs, alpha=factor)

    def unrotated(self, nominal: Nominal, outside: FloatArray) -> FloatArray:
        """Return differences (k, P) in the order of the network's own parameters."""
        first = self.first.double().cpu().numpy() @ nominal.basis.T
        first = first + self.outside.double().cpu().numpy()[:, :, None] * outside[:, None, :]
        parts = [first[:, :, :-1].reshape(len(first), -1), first[:, :, -1]]
        for weight, bias in self.deeper:
            parts += [
                weight.double().cpu().numpy().reshape(len(first), -1),
                bias.double().cpu().numpy(),
            ]
        return np.hstack(parts)
