"""Many models of any kind at once: every step's gradients of all of them in one vectorised call.

For what does not fold: convolutions, Adam, activations without exact differences. Each model is
trained whole and the base is subtracted at the end, so arithmetic is float64: what cancels then is
some 1e-12 of the difference (float32 would leave 1e-4 and more, and Adam amplifies it).

Memory: θ and the optimiser's state of ``chunk`` models, and what the backward pass keeps of their
activations: about ``chunk`` × records of a step × activations a record × 8 bytes × 3. The default
``chunk`` keeps that below 64 megabytes: beyond, one model at a time is as fast.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from exhume.arrays import Array, FloatArray
from exhume.errors import InputError
from exhume.records import Records
from exhume.training.batches import Index
from exhume.training.network import Training
from exhume.training.objective import Objective
from exhume.training.simulator import Simulator, repeatable

_BUDGET = 1 << 26
_MOST = 16
"""More models at once gain nothing: the arithmetic is no longer bound by calls."""


def unbatchable(training: Training) -> str | None:
    """Say why this engine can't run a training, or return None."""
    if training.clipping is not None:
        return "clipping keeps every record's gradient: one model at a time fills the memory"
    return None


class BatchedSimulator(Simulator):
    """Differences of any training without clipping, ``chunk`` models at a time."""

    def __init__(
        self,
        training: Training,
        fixed_set: Records,
        *,
        chunk: int | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        reason = unbatchable(training)
        if reason is not None:
            raise InputError(reason)
        self.training, self.fixed_set = repeatable(training), fixed_set
        training.require_records(fixed_set)
        self._objective = training.objective(str(dtype).removeprefix("torch."))
        self._x = self._objective.tensor(fixed_set.x)
        self._y = self._objective.responses(training.responses(fixed_set.labels))
        own = np.ones(len(fixed_set)) if fixed_set.weight is None else fixed_set.weight
        self._weight = self._objective.tensor(own)
        steps = training.steps(len(fixed_set) + 1, np.random.default_rng(0))
        self._steps = [_parted(index, len(fixed_set)) for index in steps]
        self.chunk = chunk or fitting(training, len(fixed_set))
        self._base: FloatArray = self._trained(self._x[:1], self._y[:1], 0.0)[0]

    @property
    def base(self) -> FloatArray:
        """Return θ (P,) of the training in which the record counts nothing."""
        return self._base

    def differences(self, x: Array, y: Array) -> FloatArray:
        """Return θ(xᵢ, yᵢ) − base (k, P), float64."""
        records, labels = self._objective.tensor(x), self._objective.responses(y)
        found = np.empty((len(x), len(self._base)))
        for start in range(0, len(x), self.chunk):
            part = slice(start, start + self.chunk)
            found[part] = self._trained(records[part], labels[part], 1.0) - self._base
        return found

    def _trained(self, x: Tensor, y: Tensor, weight: float) -> FloatArray:
        """Return θ (k, P) after training with one of the records each, weighted."""
        training, objective = self.training, self._objective
        drawn = training.initial.draw(training.network, np.random.default_rng(0))
        theta = objective.flat(drawn).expand(len(x), -1)
        state = training.optimiser.start(theta)
        for own, count, with_target in self._steps:
            # The target goes through the network with the others: some layers mix a batch.
            shares = torch.cat([self._weight[own], self._weight.new_tensor([weight])]) / count
            last = slice(None) if with_target else slice(-1)
            batch = _Batch(objective, self._x[own], self._y[own], shares[last], with_target)
            found = torch.func.vmap(torch.func.grad(batch.loss))(theta, x, y)
            theta, state = training.optimiser.step(theta, found, state)
        training.require_converged(bool(torch.isfinite(theta).all()))
        return np.asarray(theta.cpu().numpy(), dtype=np.float64)


class _Batch:
    """The mean loss of one step, of a model and its own target."""

    def __init__(
        self, objective: Objective, x: Tensor, y: Tensor, shares: Tensor, with_target: bool
    ) -> None:
        self.objective, self.x, self.y = objective, x, y
        self.shares, self.with_target = shares, with_target

    def loss(self, theta: Tensor, target: Tensor, label: Tensor) -> Tensor:
        """Return the weighted loss at θ (P,)."""
        x, y = self.x, self.y
        if self.with_target:
            x, y = torch.cat([x, target[None]]), torch.cat([y, label[None]])
        return (self.objective.losses(theta, x, y) * self.shares).sum()


def _parted(index: Index | None, records: int) -> tuple[Index, int, bool]:
    """Return the fixed set's records in a step, its size, and whether the target is in."""
    if index is None:
        return np.arange(records), records + 1, True
    own = index[index < records]
    return own, max(1, len(index)), len(own) < len(index)


def fitting(training: Training, records: int) -> int:
    """Return how many models are trained at once by default, on so many records: at least 1."""
    batches = training.batches
    most = records + 1 if batches is None else min(records + 1, batches.size)
    kept = 3 * 8 * most * _activations(training.objective("float64"))
    return int(np.clip(_BUDGET // kept, 1, _MOST))


def _activations(objective: Objective) -> int:
    """Return how many numbers a record's activations are, over all layers."""
    sizes: list[int] = []

    def note(_module: torch.nn.Module, _inputs: object, output: Tensor) -> None:
        sizes.append(output.numel())

    leaves = [m for m in objective.module.modules() if not list(m.children())]
    hooks = [leaf.register_forward_hook(note) for leaf in leaves]
    blank = torch.zeros((2, *objective.network.record_shape), dtype=objective.dtype)
    with torch.no_grad():
        objective.module(blank.to(objective.device))
    for hook in hooks:
        hook.remove()
    return max(1, sum(sizes) // 2)
