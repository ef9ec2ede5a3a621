"""A fully connected network's steps by hand: several times as fast as automatic differentiation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from exhume.derivatives.activations import torch_library, with_curvature
from exhume.derivatives.objective import Loss
from exhume.derivatives.step_products import Expansion, Known, LossFamily, StepLoss, StepRecords
from exhume.models.base import Activation


@dataclass(frozen=True, eq=False)
class PerceptronFamily(LossFamily):
    """Cross-entropy or squared error of a fully connected network; ``known.x`` is (n, inputs)."""

    widths: tuple[int, ...]
    activation: Activation
    loss: Loss
    known: Known

    def with_record(self, record: Tensor) -> StepLoss:
        """Return the loss with the record in it."""
        return PerceptronLoss(self, record)


@dataclass(frozen=True, eq=False)
class _Members:
    """A batch: ``rows`` (n, inputs), the same as ``columns``, labels (outputs, n) and their mass.

    Labels and mass are multiplied by each record's share of the loss. ``record`` is the share of
    the unknown record, which is then the last, or 0.
    """

    rows: Tensor
    columns: Tensor
    labels: Tensor
    mass: Tensor
    record: float


class Layer(NamedTuple):
    """One layer's weight (out, in) and bias (out, 1)."""

    weight: Tensor
    bias: Tensor


@dataclass(frozen=True, eq=False)
class ForwardBackward:
    """The results of one pass over records; every array is (width, records).

    For each hidden layer: the scores ``z``, and the activation's ``values``, ``slopes`` and second
    derivatives ``bends`` (if it gave them). ``back`` is the loss's slope in the values. For each
    layer: ``signals``, the loss's slope in its scores. ``shares`` are class probabilities, or the
    scores.
    """

    z: list[Tensor]
    values: list[Tensor]
    slopes: list[Tensor]
    bends: list[Tensor]
    back: list[Tensor]
    signals: list[Tensor]
    shares: Tensor


def forward_backward(
    z: Tensor,
    later: Sequence[Layer],
    activation: Callable[[Tensor], tuple[Tensor, ...]],
    output_signal: Callable[[Tensor], tuple[Tensor, Tensor]],
) -> ForwardBackward:
    """Pass records through the layers above their first scores ``z`` (width, n), and back.

    ``activation`` gives value and slope, or also the second derivative; ``output_signal`` the
    loss's slope in the scores, and the shares it came from.
    """
    scores, hidden = [z], []
    for weight, bias in later:
        hidden.append(activation(scores[-1]))
        scores.append(torch.addmm(bias, weight, hidden[-1][0]))
    signal, shares = output_signal(scores.pop())
    signals, back = [signal], list[Tensor]()
    for layer, (_, slope, *_) in zip(reversed(later), reversed(hidden), strict=True):
        back.insert(0, layer.weight.T @ signals[0])
        signals.insert(0, back[0] * slope)
    values, slopes = [one[0] for one in hidden], [one[1] for one in hidden]
    bends = [bend for _, _, *rest in hidden for bend in rest]
    return ForwardBackward(scores, values, slopes, bends, back, signals, shares)


class PerceptronLoss(StepLoss):
    """The mean loss of a batch; each record is a column, which is faster for narrow layers."""

    def __init__(self, family: PerceptronFamily, record: Tensor) -> None:
        self.family = family
        self.activation = with_curvature(family.activation, torch_library())
        self.entropic = family.loss is Loss.CROSS_ENTROPY
        self.record, self.inputs = record, family.widths[0]
        self.everyone = family.known.with_record(record)
        self.shapes = list(pairwise(family.widths))
        self._sizes = [size for i, o in self.shapes for size in (i * o, o)]
        self._whole: dict[tuple[float, int], _Members] = {}

    def gradient(self, theta: Tensor, batch: StepRecords) -> Tensor:
        """Return the step's gradient (P,)."""
        members = self.members(batch)
        found = self.passed(self.layers(theta), members, self.activation.first)
        return gathered(found.signals, [members.rows, *(v.T for v in found.values)])

    def expand(self, theta: Tensor, batch: StepRecords) -> Expansion:
        """Return the gradient with the signals of the forward and the backward pass."""
        return _Signals(self, theta, self.members(batch))

    def passed(
        self,
        layers: Sequence[Layer],
        members: _Members,
        activation: Callable[[Tensor], tuple[Tensor, ...]],
    ) -> ForwardBackward:
        """Return the forward and the backward pass of a batch."""
        z = torch.addmm(layers[0].bias, layers[0].weight, members.columns)

        def output_signal(scores: Tensor) -> tuple[Tensor, Tensor]:
            shares = _softmax(scores) if self.entropic else scores
            return torch.addcmul(-members.labels, shares, members.mass), shares

        return forward_backward(z, layers[1:], activation, output_signal)

    def layers(self, flat: Tensor) -> list[Layer]:
        """Return views of ``flat`` (P,), one per layer."""
        parts = torch.split(flat, self._sizes)
        return [
            Layer(parts[2 * i].view(out, into), parts[2 * i + 1].view(out, 1))
            for i, (into, out) in enumerate(self.shapes)
        ]

    def members(self, batch: StepRecords) -> _Members:
        """Return the batch's records; all of them together are put in order once."""
        if batch.rows is not None:
            return self._ordered(batch)
        key = (batch.record_weight, batch.count)
        if key not in self._whole:
            self._whole[key] = self._ordered(batch)
        return self._whole[key]

    def _ordered(self, batch: StepRecords) -> _Members:
        chosen = self.everyone.members(batch)
        share = chosen.weight / batch.count
        labels = chosen.labels.T * share
        mass = labels.sum(dim=0) if self.entropic else share
        columns = self._columns if batch.rows is None else chosen.x.T
        return _Members(chosen.x, columns, labels, mass, batch.record_weight / batch.count)

    @cached_property
    def _columns(self) -> Tensor:
        return self.everyone.x.T.contiguous()


class _Signals(Expansion):
    """Pearlmutter's product (1994) for one step: no graph, only the signals of each layer."""

    def __init__(self, owner: PerceptronLoss, theta: Tensor, members: _Members) -> None:
        self.owner, self.members, self.layers = owner, members, owner.layers(theta)
        found = owner.passed(self.layers, members, owner.activation.second)
        self.values, self.slopes, self.shares = found.values, found.slopes, found.shares
        self.signals = found.signals
        # The second derivative is only needed times the error.
        self.bends = [bend * back for bend, back in zip(found.bends, found.back, strict=True)]
        self.gradient = gathered(self.signals, [members.rows, *(v.T for v in self.values)])

    @property
    def size(self) -> int:
        """The bytes of the signals."""
        kept = (*self.values, *self.slopes, *self.bends, *self.signals, self.shares)
        own = sum(t.numel() * t.element_size() for t in kept)
        rows = self.members.rows
        shared = self.members.columns.is_contiguous()
        return own if shared else own + rows.numel() * rows.element_size()

    def times(self, parameters: Tensor, record: Tensor) -> Tensor:
        """Return ∂g/∂θ · parameters + ∂g/∂record · record."""
        return self._product(parameters, record if self.members.record else None)[0]

    def transposed_times(self, cotangent: Tensor) -> tuple[Tensor, Tensor]:
        """Return both parts of the same symmetric product."""
        product, signal, scores = self._product(cotangent, None)
        if not self.members.record:
            return product, torch.zeros_like(self.owner.record)
        moves = self.owner.layers(cotangent)
        entries = moves[0].weight.T @ self.signals[0][:, -1]
        entries += self.layers[0].weight.T @ signal
        label = -self.members.record * scores
        if self.owner.entropic:
            label += self.members.record * (self.shares[:, -1] @ scores)
        return product, torch.cat([entries, label])

    def _product(self, parameters: Tensor, record: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the product, and the changes of the record's first signal and of its scores."""
        moves, inputs = self.owner.layers(parameters), self.owner.inputs
        z = torch.addmm(moves[0].bias, moves[0].weight, self.members.columns)
        if record is not None:
            z[:, -1] += self.layers[0].weight @ record[:inputs]
        bent, moved = [z], []
        for i, slope in enumerate(self.slopes):
            moved.append(slope * bent[i])
            z = torch.addmm(moves[i + 1].bias, moves[i + 1].weight, self.values[i])
            bent.append(z.addmm_(self.layers[i + 1].weight, moved[i]))
        changes = [self._output_change(bent[-1], record)]
        for i in range(len(moves) - 1, 0, -1):
            error = moves[i].weight.T @ self.signals[i]
            error.addmm_(self.layers[i].weight.T, changes[0])
            changes.insert(
                0, torch.addcmul(error * self.slopes[i - 1], self.bends[i - 1], bent[i - 1])
            )
        product = gathered(changes, [self.members.rows, *(v.T for v in self.values)])
        slopes = self.owner.layers(product)
        for i, move in enumerate(moved):
            slopes[i + 1].weight.addmm_(self.signals[i + 1], move.T)
        if record is not None:
            slopes[0].weight.addr_(self.signals[0][:, -1], record[:inputs])
        return product, changes[0][:, -1], bent[-1][:, -1]

    def _output_change(self, scores: Tensor, record: Tensor | None) -> Tensor:
        """Return the change of the loss's slope in the scores."""
        members = self.members
        change = scores
        if self.owner.entropic:
            weighted = self.shares * scores
            change = torch.addcmul(weighted, self.shares, weighted.sum(dim=0), value=-1.0)
        change = change * members.mass
        if record is not None:
            label = record[self.owner.inputs :]
            if self.owner.entropic:
                change[:, -1] += members.record * label.sum() * self.shares[:, -1]
            change[:, -1] -= members.record * label
        return change


def gathered(signals: list[Tensor], inputs: list[Tensor]) -> Tensor:
    """Return the flat sum over a batch of signal (out, n) ⊗ input (n, in), one per layer."""
    parts: list[Tensor] = []
    for signal, rows in zip(signals, inputs, strict=True):
        parts += [(signal @ rows).reshape(-1), signal.sum(dim=1)]
    return torch.cat(parts)


def _softmax(scores: Tensor) -> Tensor:
    powers = torch.exp(scores - scores.amax(dim=0))
    return powers / powers.sum(dim=0)
