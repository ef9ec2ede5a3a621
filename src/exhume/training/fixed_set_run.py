"""The training without the extra record: run once in float64, the base of all differences.

Layers are numbered from 0. A layer's signal is the derivative of the batch's mean loss in its
scores. Arrays of scores are (width, records), so that the records of a tile are contiguous.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from exhume.derivatives.activations import WithDifferences, torch_library, with_differences
from exhume.derivatives.objective import Loss
from exhume.derivatives.perceptron_torch import Layer, forward_backward
from exhume.models.mlp import MLP
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.records import Records
from exhume.training.batches import Index
from exhume.training.network import Training
from exhume.training.optimisers import SGD

_KEPT_BYTES = 1 << 29
"""Tiles of all steps are kept in memory up to this size, and recomputed beyond it."""
_RANK_TOLERANCE = 1e-11


@dataclass(frozen=True, eq=False)
class RecordTile:
    """Some records at θ₋(t), with all quantities that differences refer to.

    ``inputs`` (m, r) have the bias as a column. ``z``, ``h``, ``slope`` and ``back`` are one per
    hidden layer; ``h`` has a last row of ones for the bias. ``delta`` is one per layer and includes
    each record's share of the mean. ``p`` are class probabilities (outputs, m), or None for the
    squared error. ``share`` is (m,).
    """

    inputs: Tensor
    z: list[Tensor]
    h: list[Tensor]
    slope: list[Tensor]
    back: list[Tensor]
    delta: list[Tensor]
    p: Tensor | None
    share: Tensor


@dataclass(frozen=True, eq=False)
class RecordedStep:
    """One step of the training: θ₋(t), the records of the step, and whether it has the target.

    Steps are numbered from 0.
    """

    first: FloatArray
    """The first layer with its bias as last column, in the record's own coordinates, float64."""
    deeper: list[Layer]
    tiles: list[RecordTile]
    with_target: bool
    count: int
    number: int


class Nominal:
    """θ₋ along the whole training, and its ``tiles`` in the precision of the differences."""

    def __init__(
        self, training: Training, fixed_set: Records, *, dtype: torch.dtype, tile: int
    ) -> None:
        assert isinstance(training.network, MLP)
        training.require_records(fixed_set)
        self.training, self.dtype, self.tile = training, dtype, tile
        self.device = torch.device(training.device)
        self.activation = with_differences(training.network.activation, torch_library())
        self.loss = training.objective("float64").loss
        x = np.asarray(fixed_set.x, dtype=np.float64).reshape(len(fixed_set), -1)
        self._rows = np.hstack([x, np.ones((len(x), 1))])
        self._weight = (
            np.ones(len(x)) if fixed_set.weight is None else fixed_set.weight.astype(np.float64)
        )
        self._responses = self.encoded(training.responses(fixed_set.labels))
        self.basis = span(self._rows)
        self._inputs = self.tensor(self._rows @ self.basis)
        self._indices = list(training.steps(len(x) + 1, np.random.default_rng(0)))
        self._trajectory = self._trained()
        self.final = self._trajectory.pop()
        training.require_converged(bool(np.isfinite(self.final).all()))
        self._kept: list[RecordedStep] | None = None

    def tensor(self, values: FloatArray) -> Tensor:
        """Return values on the device, in the precision of the differences."""
        return torch.tensor(values, dtype=self.dtype, device=self.device)

    def zeros(self, *shape: int) -> Tensor:
        """Return zeros of a shape, on the same device and in the same precision."""
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    @property
    def widths(self) -> tuple[int, ...]:
        """Return the numbers of inputs, of units in each hidden layer, and of outputs."""
        network = self.training.network
        assert isinstance(network, MLP)
        return (int(np.prod(network.record_shape)), *network.hidden, network.outputs)

    def layers(self, theta: FloatArray) -> tuple[FloatArray, list[tuple[FloatArray, FloatArray]]]:
        """Return the first layer with its bias as last column, and the deeper layers."""
        parts, start = [], 0
        for inputs, outputs in pairwise(self.widths):
            weight = theta[start : start + inputs * outputs].reshape(outputs, inputs)
            start += inputs * outputs
            parts.append((weight, theta[start : start + outputs]))
            start += outputs
        first = np.hstack([parts[0][0], parts[0][1][:, None]])
        return first, parts[1:]

    def steps(self) -> Iterator[RecordedStep]:
        """Yield every step; tiles are kept between calls if they fit in memory."""
        if self._kept is not None:
            yield from self._kept
            return
        keep = self._bytes() <= _KEPT_BYTES
        steps = []
        for number, theta in enumerate(self._trajectory):
            step = self._step(theta, number)
            if keep:
                steps.append(step)
            yield step
        if keep:
            self._kept = steps

    def encoded(self, y: Array) -> FloatArray:
        """Return responses as (outputs, n): one-hot, or the numbers themselves."""
        if self.loss is Loss.SQUARED_ERROR:
            return np.asarray(y, dtype=np.float64)[None, :]
        return np.asarray(np.eye(self.training.network.outputs)[:, y])

    def _step(self, theta: FloatArray, number: int) -> RecordedStep:
        index = self._indices[number]
        first, deeper = self.layers(theta)
        rotated = self.tensor(first @ self.basis)
        tensors = [Layer(self.tensor(w), self.tensor(b[:, None])) for w, b in deeper]
        own, count, with_target = self._chosen(index)
        tiles = []
        for start in range(0, len(own), self.tile):
            part = own[start : start + self.tile]
            whole = index is None
            inputs = self._inputs[start : start + self.tile] if whole else self._inputs[part]
            tiles.append(
                _tile(
                    (rotated, tensors),
                    inputs,
                    self.tensor(self._responses[:, part]),
                    self.tensor(self._weight[part] / count),
                    self.activation,
                    self.loss,
                )
            )
        return RecordedStep(first, tensors, tiles, with_target, count, number)

    def _chosen(self, index: Index | None) -> tuple[Index, int, bool]:
        """Return the fixed set's records in a step, its size, and whether it has the target."""
        last = len(self._rows)
        if index is None:
            return np.arange(last), last + 1, True
        own = index[index < last]
        return own, max(1, len(index)), len(own) < len(index)

    def _trained(self) -> list[FloatArray]:
        """Return θ₋ before every step and after the last, float64."""
        optimiser = self.training.optimiser
        assert isinstance(optimiser, SGD)
        drawn = self.training.initial.draw(self.training.network, np.random.default_rng(0))
        theta = np.concatenate([part.ravel() for part in drawn.values()])
        state, found = optimiser.start(theta), [theta]
        # The caller reports divergence when it checks the final parameters.
        with np.errstate(over="ignore", invalid="ignore"):
            for index in self._indices:
                theta, state = optimiser.step(theta, self._gradient(theta, index), state)
                found.append(theta)
        return found

    def _gradient(self, theta: FloatArray, index: Index | None) -> FloatArray:
        first, deeper = self.layers(theta)
        own, count, _ = self._chosen(index)
        made = [Layer(torch.from_numpy(w), torch.from_numpy(b[:, None])) for w, b in deeper]
        tile = _tile(
            (torch.from_numpy(first), made),
            torch.from_numpy(self._rows if index is None else self._rows[own]),
            torch.from_numpy(self._responses[:, own]),
            torch.from_numpy(self._weight[own] / count),
            self.activation,
            self.loss,
        )
        rotated = tile.delta[0] @ tile.inputs
        parts = [rotated[:, :-1].reshape(-1), rotated[:, -1]]
        for delta, h in zip(tile.delta[1:], tile.h, strict=True):
            layer = delta @ h.T
            parts += [layer[:, :-1].reshape(-1), layer[:, -1]]
        return np.asarray(torch.cat(parts).numpy())

    def _bytes(self) -> int:
        numbers = 5 * sum(self.widths[1:-1]) + 2 * self.widths[-1] + 1
        records = sum(len(self._rows) if i is None else len(i) for i in self._indices)
        rank = self.basis.shape[1]
        own = sum(0 if i is None else len(i) * rank for i in self._indices)
        return (records * numbers + own) * self.dtype.itemsize


def span(rows: FloatArray) -> FloatArray:
    """Return an orthonormal basis (columns, rank) of the rows' span."""
    n, columns = rows.shape
    if n < columns:
        left, sizes, _ = np.linalg.svd(rows.T, full_matrices=False)
        return np.asarray(left[:, sizes > _RANK_TOLERANCE * sizes[0]])
    # The triangular factor has the rows' singular values, and is small for any number of rows.
    triangle = np.linalg.qr(rows, mode="r")
    _, sizes, right = np.linalg.svd(triangle)
    return np.ascontiguousarray(right[sizes > _RANK_TOLERANCE * sizes[0]].T)


def _tile(
    layers: tuple[Tensor, Sequence[Layer]],
    inputs: Tensor,
    responses: Tensor,
    share: Tensor,
    activation: WithDifferences[Tensor],
    loss: Loss,
) -> RecordTile:
    """Run some records forward and backward."""
    first, deeper = layers

    def output_signal(scores: Tensor) -> tuple[Tensor, Tensor]:
        shares = torch.softmax(scores, dim=0) if loss is Loss.CROSS_ENTROPY else scores
        return (shares - responses) * share, shares

    found = forward_backward(first @ inputs.T, deeper, activation.first, output_signal)
    h = [torch.cat([value, torch.ones_like(value[:1])]) for value in found.values]
    p = found.shares if loss is Loss.CROSS_ENTROPY else None
    return RecordTile(inputs, found.z, h, found.slopes, found.back, found.signals, p, share)
