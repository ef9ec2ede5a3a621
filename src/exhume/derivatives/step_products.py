"""One training step to first order: its gradient, and the derivatives by θ and the record.

A record is one flat vector (R,): its entries, then its label in the form of the loss, a share of
each class (cross-entropy) or the response (squared error). So a label can be unknown, like a pixel.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor

from exhume.derivatives.objective import Loss, Objective


@dataclass(frozen=True, eq=False)
class StepRecords:
    """The members of a step: ``rows`` (None: all); the record is the last, with index n.

    The step's gradient is that of the summed losses divided by ``count``. ``record_weight`` is 0 if
    the record is not in the batch, or does not count. ``step`` is the step's number.
    """

    rows: Tensor | None
    record_weight: float
    count: int
    step: int = 0


@dataclass(frozen=True, eq=False)
class Known:
    """The fixed set as tensors: ``x`` (n, *shape), ``labels`` (n, outputs), ``weight`` (n,)."""

    x: Tensor
    labels: Tensor
    weight: Tensor

    def with_record(self, record: Tensor) -> Known:
        """Return these and the record after them, with weight 0: batches set its weight."""
        outputs = self.labels.shape[1]
        own, label = record[:-outputs].reshape(self.x.shape[1:]), record[-outputs:]
        return Known(
            torch.cat([self.x, own[None]]),
            torch.cat([self.labels, label[None]]),
            torch.cat([self.weight, self.weight.new_zeros(1)]),
        )

    def members(self, batch: StepRecords) -> Known:
        """Return the members of the batch; the record, if present, is weighted."""
        rows = slice(None) if batch.rows is None else batch.rows
        weight = self.weight[rows]
        if batch.record_weight:
            weight = torch.cat([weight[:-1], weight.new_full((1,), batch.record_weight)])
        return Known(self.x[rows], self.labels[rows], weight)


class Expansion(ABC):
    """A step's gradient g(θ, record) at one point, to first order.

    If a step also leaves statistics of its batch, they follow the gradient: (P,) then means (P +
    S,).
    """

    gradient: Tensor

    @property
    @abstractmethod
    def size(self) -> int:
        """The bytes that this occupies in memory."""

    @abstractmethod
    def times(self, parameters: Tensor, record: Tensor) -> Tensor:
        """Return ∂g/∂θ · parameters + ∂g/∂record · record, (P,)."""

    @abstractmethod
    def transposed_times(self, cotangent: Tensor) -> tuple[Tensor, Tensor]:
        """Return the transposed products (P,) and (R,) with ``cotangent`` (P,)."""


class StepLoss(ABC):
    """The loss that training steps descend, with one record in it."""

    @abstractmethod
    def gradient(self, theta: Tensor, batch: StepRecords) -> Tensor:
        """Return the step's gradient (P,) alone."""

    @abstractmethod
    def expand(self, theta: Tensor, batch: StepRecords) -> Expansion:
        """Return the step's gradient with what its products need."""


class LossFamily(ABC):
    """The loss of a training on the fixed set and any one more record."""

    known: Known

    @abstractmethod
    def with_record(self, record: Tensor) -> StepLoss:
        """Return the loss with ``record`` (R,) in it."""

    def without_record(self, batch: StepRecords) -> StepRecords:
        """Return the step in which the record does not count: it is left out of the batch."""
        rows = batch.rows
        known = None if rows is None else rows[rows < len(self.known.x)]
        return StepRecords(known, 0.0, batch.count, batch.step)

    def blank(self, unknowns: int) -> Tensor:
        """Return the record (R,) of the training in which it does not count."""
        return self.known.x.new_zeros(unknowns)


def record_losses(loss: Loss, scores: Tensor, labels: Tensor) -> Tensor:
    """Return each record's loss (n,); ``labels`` (n, outputs) are shares of classes or responses.

    >>> both = torch.zeros(1, 2), torch.tensor([[1.0, 0.0]])
    >>> round(float(record_losses(Loss.CROSS_ENTROPY, *both)), 4)
    0.6931
    """
    if loss is Loss.CROSS_ENTROPY:
        return -(labels * torch.log_softmax(scores, dim=1)).sum(dim=1)
    return 0.5 * (scores - labels).square().sum(dim=1)


@dataclass(frozen=True, eq=False)
class AutogradFamily(LossFamily):
    """Any network, by automatic differentiation."""

    objective: Objective
    known: Known

    def with_record(self, record: Tensor) -> StepLoss:
        """Return the loss with the record in it."""
        return AutogradLoss(self.objective, self.known, record)


class AutogradLoss(StepLoss):
    """The mean loss of a batch.

    Its second derivative in (θ, record) together is symmetric: both products are one backward pass
    through the graph of the gradient. The record has its own graph, so that the inputs of the
    others are not differentiated.
    """

    def __init__(self, objective: Objective, known: Known, record: Tensor) -> None:
        self.objective, self.known, self.record = objective, known, record

    def gradient(self, theta: Tensor, batch: StepRecords) -> Tensor:
        """Return the step's gradient (P,)."""
        at = theta.detach().requires_grad_(True)
        members = self.known.with_record(self.record).members(batch)
        return torch.autograd.grad(self._total(at, members, batch), at)[0]

    def expand(self, theta: Tensor, batch: StepRecords) -> Expansion:
        """Return the gradient and its graphs."""
        at, own = theta.detach().requires_grad_(True), self.record.detach().requires_grad_(True)
        meter = GraphMeter()
        with meter.weighing():
            others = self._total(at, self._others(batch), batch)
            slopes = torch.autograd.grad(others, at, create_graph=True)
            if batch.record_weight:
                alone = Known(self.known.x[:0], self.known.labels[:0], self.known.weight[:0])
                member = alone.with_record(own).members(StepRecords(None, batch.record_weight, 1))
                total = self._total(at, member, batch)
                slopes += torch.autograd.grad(total, (at, own), create_graph=True)
        return _SymmetricGraph((at, own), slopes, meter.bytes)

    def _others(self, batch: StepRecords) -> Known:
        """The batch without the record, which is the last if present."""
        if batch.rows is None:
            return self.known
        rows = batch.rows[:-1] if batch.record_weight else batch.rows
        return Known(self.known.x[rows], self.known.labels[rows], self.known.weight[rows])

    def _total(self, theta: Tensor, members: Known, batch: StepRecords) -> Tensor:
        scores = self.objective.scores(theta, members.x)
        losses = record_losses(self.objective.loss, scores, members.labels)
        return (losses * members.weight).sum() / batch.count


class _SymmetricGraph(Expansion):
    """Gradients of the others' loss by θ, and of the record's, if present, by θ and the record."""

    def __init__(
        self, leaves: tuple[Tensor, Tensor], slopes: tuple[Tensor, ...], size: int
    ) -> None:
        self._leaves, self._slopes, self._size = leaves, slopes, size
        self.gradient = sum(slopes[:2], start=torch.zeros_like(leaves[0])).detach()

    @property
    def size(self) -> int:
        return self._size

    def times(self, parameters: Tensor, record: Tensor) -> Tensor:
        moves = (parameters, parameters, record)[: len(self._slopes)]
        return torch.autograd.grad(self._slopes, self._leaves[0], moves, retain_graph=True)[0]

    def transposed_times(self, cotangent: Tensor) -> tuple[Tensor, Tensor]:
        slopes = self._slopes[:2]
        found = torch.autograd.grad(
            slopes,
            self._leaves,
            [cotangent] * len(slopes),
            retain_graph=True,
            materialize_grads=True,
        )
        return found[0], found[1]


@dataclass(frozen=True, eq=False)
class ClippedFamily(LossFamily):
    """Each record's gradient cut to ``norm``, as DP-GD does; the noise is left out."""

    objective: Objective
    known: Known
    norm: float

    def with_record(self, record: Tensor) -> StepLoss:
        """Return the loss with the record in it."""
        return ClippedLoss(self.objective, self.known, record, self.norm)


class ClippedLoss(StepLoss):
    """A sum of clipped gradients is not the gradient of a function: its Jacobian is not symmetric.

    The product with it is the derivative of the transposed product.
    """

    def __init__(self, objective: Objective, known: Known, record: Tensor, norm: float) -> None:
        self.objective, self.known, self.record, self.norm = objective, known, record, norm

    def gradient(self, theta: Tensor, batch: StepRecords) -> Tensor:
        """Return the step's gradient (P,)."""
        return self._clipped(theta, self.record, batch).detach()

    def expand(self, theta: Tensor, batch: StepRecords) -> Expansion:
        """Return the gradient and its graph."""
        at, own = theta.detach().requires_grad_(True), self.record.detach().requires_grad_(True)
        gradient = self._clipped(at, own, batch)
        probe = torch.zeros_like(gradient, requires_grad=True)
        pulled = torch.autograd.grad(
            gradient, (at, own), probe, create_graph=True, materialize_grads=True
        )
        # The size of a torch.func graph is unknown; it is about a dozen tables of all gradients.
        records = 1 + len(self.known.x if batch.rows is None else batch.rows)
        size = 12 * records * theta.numel() * theta.element_size()
        return _Graph((at, own), gradient, probe, pulled, size)

    def _clipped(self, theta: Tensor, record: Tensor, batch: StepRecords) -> Tensor:
        members = self.known.with_record(record).members(batch)

        def loss(at: Tensor, one: Tensor, label: Tensor) -> Tensor:
            scores = self.objective.scores(at, one[None])
            return record_losses(self.objective.loss, scores, label[None])[0]

        slopes = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
        each = slopes(theta, members.x, members.labels) * members.weight[:, None]
        # Inside the root, because a norm has no derivative at 0, and a record may be there.
        lengths = (each.square().sum(dim=1) + 1e-60).sqrt()
        factor = (self.norm / lengths).clamp_max(1.0)
        total: Tensor = (each * factor[:, None]).sum(dim=0) / batch.count
        return total


class _Graph(Expansion):
    def __init__(
        self,
        leaves: tuple[Tensor, Tensor],
        gradient: Tensor,
        probe: Tensor,
        pulled: tuple[Tensor, ...],
        size: int,
    ) -> None:
        self._leaves, self._graph, self._probe, self._pulled = leaves, gradient, probe, pulled
        self.gradient, self._size = gradient.detach(), size

    @property
    def size(self) -> int:
        return self._size

    def times(self, parameters: Tensor, record: Tensor) -> Tensor:
        return torch.autograd.grad(
            self._pulled, self._probe, (parameters, record), retain_graph=True
        )[0]

    def transposed_times(self, cotangent: Tensor) -> tuple[Tensor, Tensor]:
        found = torch.autograd.grad(
            self._graph, self._leaves, cotangent, retain_graph=True, materialize_grads=True
        )
        return found[0], found[1]


class GraphMeter:
    """Counts the bytes that a graph keeps alive, each storage once."""

    def __init__(self) -> None:
        self.bytes, self._met = 0, set[int]()

    def weighing(self) -> AbstractContextManager[object]:
        """Count what is saved for backward passes inside."""
        hooks: AbstractContextManager[object] = torch.autograd.graph.saved_tensors_hooks(
            self._weigh, _unchanged
        )
        return hooks

    def _weigh(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._met:
            self._met.add(storage.data_ptr())
            self.bytes += storage.nbytes()
        return tensor


def _unchanged(tensor: Tensor) -> Tensor:
    return tensor
