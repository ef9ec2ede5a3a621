"""The stationarity condition as a function of the candidates, with an explicit gradient.

At a minimum of Σ loss + decay, θ = Σᵢ Σₖ Cᵢₖ ∇fₖ(xᵢ) with Cᵢₖ = −∂lossᵢ/∂fₖ over the decay: Haim et
al. 2022 for two classes (C = λy), Buzaglo et al. 2023 for more. For one hidden layer this is

    W = Σᵢ (CᵢA ∘ 1[W x̄ᵢ > 0])ᵀ x̄ᵢᵀ,    A = Σᵢ Cᵢᵀ relu(W x̄ᵢ)ᵀ,    c = Σᵢ Cᵢ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from exhume.attacks.weights_only.read_weights import HiddenLayer
from exhume.attacks.weights_only.row_span import RowSpan


@dataclass(frozen=True, eq=False)
class Gradients:
    """The squared residual of each restart (B,), and its gradients in q (B, m, r), ρ (B, m)."""

    value: Tensor
    q: Tensor
    rho: Tensor


class StationarityProblem(Protocol):
    """The function that the search minimises; residuals are relative to ``size`` = ‖θ‖²."""

    size: float

    def evaluate(self, q: Tensor, rho: Tensor, classes: Tensor, slope: Tensor) -> Gradients:
        """Return value and gradients at coordinates (B, m, r), multipliers exp(``rho``) (B, m).

        ``slope`` (B,) belongs to each restart's ReLUs: their derivative is sigmoid(slope·z).
        """


def class_directions(scores: Tensor, classes: Tensor) -> Tensor:
    """Return Cᵢ / λᵢ (..., m, outputs): ±1, or the class against its competitors.

    For cross-entropy it is e_y − π, where π is the softmax over the other classes. If one of them
    leads, this is Buzaglo et al.'s f_y − max of the others.
    """
    outputs = scores.shape[-1]
    if outputs == 1:
        return (2.0 * classes.to(scores.dtype) - 1.0)[:, None].expand(scores.shape)
    own = torch.nn.functional.one_hot(classes, outputs).to(scores.dtype)
    return own - (scores - 1e9 * own).softmax(dim=-1)


def direction_weights(span: RowSpan, level: float) -> Tensor:
    """Return the weight of an error along each direction (r,): (1 + sₖ / level)^(−1/2)."""
    weight = (1.0 + span.singular / (level * span.singular[0])).rsqrt()
    return weight / weight[0]


class Stationarity:
    """‖θ − Σ C ∇f‖² in the coordinates of a span, for a batch of restarts at once.

    Errors along weak directions of W count more than their size: the weight of direction k is
    (1 + sₖ / ``level``)^(−1/2), where ``level`` is a share of the largest singular value. θ is the
    network's parameters, or ``change``: what training added to them (the linearised regime).
    """

    def __init__(
        self,
        network: HiddenLayer,
        span: RowSpan,
        *,
        level: float = 0.005,
        change: HiddenLayer | None = None,
    ) -> None:
        dtype = span.basis.dtype
        wanted = network if change is None else change
        self.wanted = torch.tensor(wanted.first, dtype=dtype) @ span.basis.T
        self.wanted_output = torch.tensor(wanted.output, dtype=dtype)
        self.wanted_bias = (
            None if wanted.output_bias is None else torch.tensor(wanted.output_bias, dtype=dtype)
        )
        self.first = torch.tensor(network.first, dtype=dtype) @ span.basis.T
        self.output = torch.tensor(network.output, dtype=dtype)
        bias = network.output_bias
        self.output_bias = None if bias is None else torch.tensor(bias, dtype=dtype)
        self.weight = direction_weights(span, level)
        first = (self.wanted * self.weight).square().sum()
        self.size = float(first + self.wanted_output.square().sum())

    def directions(self, q: Tensor, classes: Tensor) -> Tensor:
        """Return Cᵢ / λᵢ (..., m, outputs) at coordinates (..., m, r)."""
        if len(self.output) == 1:
            return class_directions(q[..., :1], classes)
        scores = (q @ self.first.T).relu() @ self.output.T
        if self.output_bias is not None:
            scores = scores + self.output_bias
        return class_directions(scores, classes)

    def evaluate(self, q: Tensor, rho: Tensor, classes: Tensor, slope: Tensor) -> Gradients:
        """Return value and gradients at coordinates ``q`` (B, m, r), multipliers exp(``rho``).

        A ReLU's derivative is sigmoid(``slope``·z), so that records can cross a kink.
        """
        slope = slope[:, None, None]
        c = rho.exp()[..., None] * self.directions(q, classes)
        z = q @ self.first.T
        s, relu = torch.sigmoid(slope * z), z.relu()
        back = c @ self.output
        m = s * back
        qw = q * self.weight
        e = self.wanted * self.weight - m.transpose(1, 2) @ qw
        e_output = self.wanted_output - c.transpose(1, 2) @ relu
        value = e.square().sum((1, 2)) + e_output.square().sum((1, 2))
        dm = -2.0 * qw @ e.transpose(1, 2)
        through = dm * s
        dc = through @ self.output.T - 2.0 * relu @ e_output.transpose(1, 2)
        if self.wanted_bias is not None:
            e_bias = self.wanted_bias - c.sum(1)
            value = value + e_bias.square().sum(1)
            dc = dc - 2.0 * e_bias[:, None]
        dz = through * back * (1.0 - s) * slope - 2.0 * (c @ e_output) * s
        dq = -2.0 * (m @ e) * self.weight + dz @ self.first
        return Gradients(value, dq, (dc * c).sum(-1))
