"""The lower level of one hidden layer of ReLUs, in the span of the records.

At a minimum with weight decay the rows of W lie in the span of the records x̄ = (x − centre, 1). So
W = B Q, where Q is an orthonormal basis of that span, and training W on x̄ is training B on x̄Qᵀ:
n numbers per neuron instead of d. No training reaches the part of the released W* outside the span.
There the Hessian is the decay alone, and inverting it is a division.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from exhume.attacks.weights_only.bilevel.network import NetworkLevel
from exhume.attacks.weights_only.read_weights import HiddenLayer
from exhume.models.two_layer import TwoLayer
from exhume.training.stationary import Stationary


@dataclass(frozen=True, eq=False)
class _Inside:
    """A network in the records' span: ``basis`` Q (k, d + 1), the records in it (n, k), B, A, c."""

    basis: Tensor
    records: Tensor
    first: Tensor
    output: Tensor
    bias: Tensor | None


class HiddenLevel:
    """Trains a network with one hidden layer again for every set of records.

    With ``warm``, trainings start where the last one ended, otherwise at the released parameters.
    ``steps`` bounds the steps of L-BFGS, ``products`` the Hessian–vector products. Memory holds W*
    once, and vectors of h·n numbers; no other array has the h·d numbers of the whole network.
    """

    def __init__(
        self,
        training: Stationary,
        target: HiddenLayer,
        classes: Tensor,
        *,
        steps: int = 40,
        products: int = 30,
        warm: bool = True,
    ) -> None:
        self.training, self.classes = training, classes
        self.steps, self.products, self.warm = steps, products, warm
        self.first = torch.tensor(target.first, dtype=torch.float64)
        self.size = float(self.first.square().sum())
        self.output = torch.tensor(target.output, dtype=torch.float64)
        bias = target.output_bias
        self.bias = None if bias is None else torch.tensor(bias, dtype=torch.float64)
        self.last: _Inside | None = None
        self.level: NetworkLevel | None = None

    def evaluate(self, x: Tensor) -> tuple[float, Tensor]:
        """Return ‖θ(x) − θ*‖² and its gradient in centred records ``x`` (n, d)."""
        target = self._within(torch.cat([x, torch.ones_like(x[:, :1])], dim=1))
        level = self._level(target)
        wanted = self._flat(target)
        settled = self.warm and self.last is not None
        start = self._moved(target) if settled else wanted
        theta = level.train(target.records, start, settled=settled)
        found = self._unpacked(level, theta, target)
        self.last = found
        gap = theta - wanted
        p = level.inverse_hessian(target.records, theta, 2.0 * gap)
        outside = self.size - float(target.first.square().sum())
        slope = self._slope(found, self._unpacked(level, p, target), target.first)
        return float(gap @ gap) + max(outside, 0.0), -slope[:, :-1]

    def trained(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return W (h, d + 1), A and c of the last training."""
        assert self.last is not None
        return self.last.first @ self.last.basis, self.last.output, self.last.bias

    def _within(self, design: Tensor) -> _Inside:
        """Return the part of the target in the span of the records with constant (n, d + 1)."""
        left, right = torch.linalg.qr(design.T)
        return _Inside(
            left.T.contiguous(), right.T.contiguous(), self.first @ left, self.output, self.bias
        )

    def _level(self, target: _Inside) -> NetworkLevel:
        """Return the training of a network whose inputs are the span's coordinates."""
        if self.level is not None:
            return self.level
        width, inside = target.first.shape
        network = TwoLayer((inside,), len(self.output), width, output_bias=self.bias is not None)
        training = Stationary(network, self.training.classes, self.training.weight_decay)
        settings = {"steps": self.steps, "products": self.products}
        self.level = NetworkLevel(training, self.classes, **settings)
        return self.level

    def _moved(self, target: _Inside) -> Tensor:
        """Return the parameters of the last training, mapped into the span of other records."""
        assert self.last is not None
        last = self.last
        first = last.first @ (last.basis @ target.basis.T)
        return self._flat(_Inside(target.basis, target.records, first, last.output, last.bias))

    def _flat(self, inside: _Inside) -> Tensor:
        parts = [inside.first.ravel(), inside.output.ravel()]
        return torch.cat(parts if inside.bias is None else [*parts, inside.bias])

    def _unpacked(self, level: NetworkLevel, theta: Tensor, like: _Inside) -> _Inside:
        parts = level.objective.unpack(theta)
        first, output = parts["hidden.weight"], parts["output.weight"]
        return _Inside(like.basis, like.records, first, output, parts.get("output.bias"))

    def _slope(self, at: _Inside, p: _Inside, target: Tensor) -> Tensor:
        """Return ∂⟨∇_θ loss, p⟩ in the records with constant (n, d + 1)."""
        z = (at.records @ at.first.T).requires_grad_()
        moved = (at.records @ p.first.T).requires_grad_()
        lit = z.relu()
        scores, change = lit @ at.output.T, lit @ p.output.T
        change = change + ((z > 0) * moved) @ at.output.T
        if at.bias is not None and p.bias is not None:
            scores, change = scores + at.bias, change + p.bias
        through = (self._score_slopes(scores) * change).sum()
        back, back_moved = torch.autograd.grad(through, (z, moved))
        # Outside the span p is −2/decay times W*, which is orthogonal to the records.
        share = 2.0 / self.training.weight_decay
        inside = back @ at.first + back_moved @ (p.first + share * target)
        return inside @ at.basis - share * (back_moved @ self.first)

    def _score_slopes(self, scores: Tensor) -> Tensor:
        """Return the mean loss's derivative in each score (n, outputs)."""
        count = len(scores)
        if scores.shape[1] == 1:
            signs = 2.0 * self.classes.to(scores.dtype)[:, None] - 1.0
            return -signs * torch.sigmoid(-signs * scores) / count
        own = torch.nn.functional.one_hot(self.classes, scores.shape[1])
        return (scores.softmax(dim=1) - own) / count
