"""Steps in which records share statistics or random numbers: the whole batch in one graph.

Batch normalisation, dropout, augmentation, label smoothing, class weights: any loss that
``BatchLoss`` computes. A step's statistics s follow its gradient g.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from exhume.derivatives.step_products import (
    Expansion,
    GraphMeter,
    Known,
    LossFamily,
    StepLoss,
    StepRecords,
)
from exhume.training.loop import BatchLoss


@dataclass(frozen=True, eq=False)
class WholeBatchFamily(LossFamily):
    """The exact loss of a training, on the fixed set and any one more record."""

    loss: BatchLoss
    known: Known

    def with_record(self, record: Tensor) -> StepLoss:
        """Return the loss with the record in it."""
        return WholeBatchLoss(self.loss, self.known, record)

    def without_record(self, batch: StepRecords) -> StepRecords:
        """Return the step with the record in its position, so that all draws stay the same."""
        return replace(batch, record_weight=0.0)

    def blank(self, unknowns: int) -> Tensor:
        """Return the mean of the fixed set: it changes the batch's statistics least."""
        mean = self.known.x.mean(dim=0).reshape(-1)
        return torch.cat([mean, mean.new_zeros(unknowns - len(mean))])


class WholeBatchLoss(StepLoss):
    """The loss L(θ, record) of a step and the statistics s of its batch.

    With λ (S,) at 0, the gradient of L + λ·s in (θ, record, λ) is (g, h, s). Its Jacobian is
    symmetric: each product is one backward pass through its graph.
    """

    def __init__(self, loss: BatchLoss, known: Known, record: Tensor) -> None:
        self.loss, self.known, self.record = loss, known, record

    def gradient(self, theta: Tensor, batch: StepRecords) -> Tensor:
        """Return the step's gradient and statistics (P + S,)."""
        at = theta.detach().requires_grad_(True)
        total, statistics = self._total(at, self.record, batch)
        slope = torch.autograd.grad(total, at)[0]
        return torch.cat([slope, statistics.detach()])

    def expand(self, theta: Tensor, batch: StepRecords) -> Expansion:
        """Return both and their graph."""
        at, own = theta.detach().requires_grad_(True), self.record.detach().requires_grad_(True)
        meter = GraphMeter()
        with meter.weighing():
            total, statistics = self._total(at, own, batch)
            dual = torch.zeros_like(statistics, requires_grad=True)
            slopes = torch.autograd.grad(
                total + dual @ statistics, (at, own), create_graph=True, materialize_grads=True
            )
        return _WholeGraph(at, own, dual, (*slopes, statistics), meter.bytes)

    def _total(self, theta: Tensor, record: Tensor, batch: StepRecords) -> tuple[Tensor, Tensor]:
        everyone = self.known.with_record(record)
        weight = torch.cat([everyone.weight[:-1], theta.new_full((1,), batch.record_weight)])
        rows = slice(None) if batch.rows is None else batch.rows
        members = (everyone.x[rows], everyone.labels[rows])
        return self.loss(batch.step, theta, members, weight[rows], batch.count)


class _WholeGraph(Expansion):
    def __init__(
        self, at: Tensor, own: Tensor, dual: Tensor, values: tuple[Tensor, ...], size: int
    ) -> None:
        self._at, self._own, self._dual, self._size = at, own, dual, size
        self._slope, self._pull, self._statistics = values
        self.gradient = torch.cat([self._slope, self._statistics]).detach()

    @property
    def size(self) -> int:
        return self._size

    def times(self, parameters: Tensor, record: Tensor) -> Tensor:
        values, moves = [self._slope], [parameters]
        if self._pull.requires_grad:
            values, moves = [*values, self._pull], [*moves, record]
        found = torch.autograd.grad(
            values, (self._at, self._dual), moves, retain_graph=True, materialize_grads=True
        )
        return torch.cat(found)

    def transposed_times(self, cotangent: Tensor) -> tuple[Tensor, Tensor]:
        slope, statistics = torch.split(cotangent, [len(self._slope), len(self._statistics)])
        values, moves = [self._slope], [slope]
        if self._statistics.requires_grad:
            values, moves = [*values, self._statistics], [*moves, statistics]
        found = torch.autograd.grad(
            values, (self._at, self._own), moves, retain_graph=True, materialize_grads=True
        )
        return found[0], found[1]
