"""One training step to first order: its gradient, and how that moves with θ and the record.

A record is one flat vector (R,): its entries, then its label as the loss takes it, a share of each
class (cross-entropy) or the response (squared error). So a label can be an unknown like a pixel.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from exhume.training.objective import Loss, Objective


@dataclass(frozen=True, eq=False)
class Batch:
    """Who takes part in a step: ``rows`` of the fixed set (None: all), the record's weight in it.

    The step's gradient is that of the summed losses divided by ``count``. A record that isn't in
    the batch has weight 0.
    """

    rows: Tensor | None
    record_weight: float
    count: int


@dataclass(frozen=True, eq=False)
class Known:
    """The fixed set as tensors: ``x`` (n, *shape), ``labels`` (n, outputs), ``weight`` (n,)."""

    x: Tensor
    labels: Tensor
    weight: Tensor

    def rows(self, chosen: Tensor | None) -> Known:
        """Return the chosen rows; None means all of them."""
        if chosen is None:
            return self
        return Known(self.x[chosen], self.labels[chosen], self.weight[chosen])


class Expansion(ABC):
    """A step's gradient g(θ, record) at one place, to first order. Fields hold no leaf to train."""

    gradient: Tensor
    bytes: int

    @abstractmethod
    def times(self, parameters: Tensor, record: Tensor) -> Tensor:
        """Return ∂g/∂θ · parameters + ∂g/∂record · record, (P,)."""

    @abstractmethod
    def transposed_times(self, cotangent: Tensor) -> tuple[Tensor, Tensor]:
        """Return the transposed products (P,) and (R,) with ``cotangent`` (P,)."""


class StepLoss(ABC):
    """The loss that training steps descend, for any batch."""

    @abstractmethod
    def gradient(self, theta: Tensor, record: Tensor, batch: Batch) -> Tensor:
        """Return the step's gradient (P,) alone."""

    @abstractmethod
    def expand(self, theta: Tensor, record: Tensor, batch: Batch) -> Expansion:
        """Return the step's gradient with what its products need."""


def record_losses(loss: Loss, scores: Tensor, labels: Tensor) -> Tensor:
    """Return each record's loss (n,); ``labels`` (n, outputs) are shares of classes or responses.

    >>> both = torch.zeros(1, 2), torch.tensor([[1.0, 0.0]])
    >>> round(float(record_losses(Loss.CROSS_ENTROPY, *both)), 4)
    0.6931
    """
    if loss is Loss.CROSS_ENTROPY:
        return -(labels * torch.log_softmax(scores, dim=1)).sum(dim=1)
    return 0.5 * (scores - labels).square().sum(dim=1)


class AutogradLoss(StepLoss):
    """Any network, by automatic differentiation.

    The step's loss L is a scalar, so its second derivative in (θ, record) together is symmetric:
    both products are one backward pass through the graph of the gradient.
    """

    def __init__(self, objective: Objective, known: Known) -> None:
        self.objective, self.known = objective, known
        self.shape = objective.network.record_shape

    def total(self, theta: Tensor, record: Tensor, batch: Batch) -> Tensor:
        """Return the weighted mean loss of the batch."""
        x, labels, weight = self.members(record, batch)
        losses = record_losses(self.objective.loss, self.objective.scores(theta, x), labels)
        return (losses * weight).sum() / batch.count

    def members(self, record: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Return inputs, labels and weights of the batch; the record comes last, if it is there."""
        known = self.known.rows(batch.rows)
        if not batch.record_weight:
            return known.x, known.labels, known.weight
        outputs = self.objective.network.outputs
        own, label = record[:-outputs].reshape(self.shape), record[-outputs:]
        weight = known.weight.new_full((1,), batch.record_weight)
        return (
            torch.cat([known.x, own[None]]),
            torch.cat([known.labels, label[None]]),
            torch.cat([known.weight, weight]),
        )

    def gradient(self, theta: Tensor, record: Tensor, batch: Batch) -> Tensor:
        """Return the step's gradient (P,)."""
        at = theta.detach().requires_grad_(True)
        return torch.autograd.grad(self.total(at, record, batch), at)[0]

    def expand(self, theta: Tensor, record: Tensor, batch: Batch) -> Expansion:
        """Return the gradient and its graph."""
        at, own = theta.detach().requires_grad_(True), record.detach().requires_grad_(True)
        meter = _Meter()
        with torch.autograd.graph.saved_tensors_hooks(meter.weigh, _unchanged):
            total = self.total(at, own, batch)
            slopes = torch.autograd.grad(
                total, (at, own), create_graph=True, materialize_grads=True
            )
        return _SymmetricGraph((at, own), slopes, meter.bytes)


class _SymmetricGraph(Expansion):
    def __init__(
        self, leaves: tuple[Tensor, Tensor], slopes: tuple[Tensor, ...], size: int
    ) -> None:
        self._leaves, self._slopes, self.bytes = leaves, slopes, size
        self.gradient = slopes[0].detach()
        self._moves = slopes[1].requires_grad

    def times(self, parameters: Tensor, record: Tensor) -> Tensor:
        moving = 2 if self._moves else 1
        return torch.autograd.grad(
            self._slopes[:moving],
            self._leaves[0],
            (parameters, record)[:moving],
            retain_graph=True,
        )[0]

    def transposed_times(self, cotangent: Tensor) -> tuple[Tensor, Tensor]:
        found = torch.autograd.grad(
            self._slopes[0], self._leaves, cotangent, retain_graph=True, materialize_grads=True
        )
        return found[0], found[1]


class ClippedLoss(AutogradLoss):
    """Each record's gradient cut to a norm, as DP-GD does; the noise is left out.

    A sum of clipped gradients is no gradient of anything: its Jacobian is not symmetric, and the
    product with it is the derivative of the transposed product.
    """

    def __init__(self, objective: Objective, known: Known, norm: float) -> None:
        super().__init__(objective, known)
        self.norm = norm

    def gradient(self, theta: Tensor, record: Tensor, batch: Batch) -> Tensor:
        """Return the step's gradient (P,)."""
        return self._clipped(theta, record, batch).detach()

    def expand(self, theta: Tensor, record: Tensor, batch: Batch) -> Expansion:
        """Return the gradient and its graph."""
        at, own = theta.detach().requires_grad_(True), record.detach().requires_grad_(True)
        gradient = self._clipped(at, own, batch)
        probe = torch.zeros_like(gradient, requires_grad=True)
        pulled = torch.autograd.grad(
            gradient, (at, own), probe, create_graph=True, materialize_grads=True
        )
        # The graph of torch.func can't be weighed; a dozen tables of all gradients is its order.
        records = 1 + len(self.known.x if batch.rows is None else batch.rows)
        size = 12 * records * theta.numel() * theta.element_size()
        return _Graph((at, own), gradient, probe, pulled, size)

    def _clipped(self, theta: Tensor, record: Tensor, batch: Batch) -> Tensor:
        x, labels, weight = self.members(record, batch)

        def loss(at: Tensor, one: Tensor, its: Tensor) -> Tensor:
            scores = self.objective.scores(at, one[None])
            return record_losses(self.objective.loss, scores, its[None])[0]

        slopes = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
        each = slopes(theta, x, labels) * weight[:, None]
        factor = (self.norm / each.norm(dim=1).clamp_min(1e-30)).clamp_max(1.0)
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
        self.gradient, self.bytes = gradient.detach(), size

    def times(self, parameters: Tensor, record: Tensor) -> Tensor:
        return torch.autograd.grad(
            self._pulled, self._probe, (parameters, record), retain_graph=True
        )[0]

    def transposed_times(self, cotangent: Tensor) -> tuple[Tensor, Tensor]:
        found = torch.autograd.grad(
            self._graph, self._leaves, cotangent, retain_graph=True, materialize_grads=True
        )
        return found[0], found[1]


class _Meter:
    """Counts the bytes that a graph keeps alive, each storage once."""

    def __init__(self) -> None:
        self.bytes, self._met = 0, set[int]()

    def weigh(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._met:
            self._met.add(storage.data_ptr())
            self.bytes += storage.nbytes()
        return tensor


def _unchanged(tensor: Tensor) -> Tensor:
    return tensor
