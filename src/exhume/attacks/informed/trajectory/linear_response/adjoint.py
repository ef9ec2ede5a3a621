"""The effect of one record on the trained parameters, to first order.

With the record's gradient g_t(x), its effect δ follows v ← μv + D_t δ + g_t(x)·w, δ ← δ − ηv. The
last δ is linear in all g_t. Per coordinate its weights come from one run backwards, so they are
computed once for all records.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from exhume.attacks.informed.trajectory.linear_response.ekfac import KroneckerCurvature
from exhume.training.optimisers import SGD

_STABLE = 0.92
"""Diagonals are limited to this share of the largest curvature with which descent is stable."""


def adjoint_weights(
    curvature: KroneckerCurvature, optimiser: SGD, steps: int, nodes: tuple[int, ...]
) -> Tensor:
    """Return the weights (k, P) of a record's gradients at the steps ``nodes``.

    Between nodes gradients are interpolated, so the weights of all steps are summed into these.
    """
    rate, momentum = optimiser.learning_rate, optimiser.momentum
    limit = _STABLE * 2.0 * (1.0 + momentum) / rate
    pulled = torch.ones_like(curvature.diagonals[0])
    carried = torch.zeros_like(pulled)
    found = pulled.new_zeros(len(nodes), len(pulled))
    for step in reversed(range(steps)):
        weight = carried - rate * pulled
        place = float(np.interp(step, nodes, range(len(nodes))))
        before = int(place)
        found[before] += (1.0 - (place - before)) * weight
        if place > before:
            found[before + 1] += (place - before) * weight
        diagonal = (curvature.at(step) + optimiser.weight_decay).clamp_max(limit)
        carried, pulled = momentum * weight, pulled + diagonal * weight
    return found


@dataclass(frozen=True, eq=False)
class Response:
    """R(x): the effect of a record (P,), in the curvature's coordinates.

    ``weights`` (k, P) belong to the record's gradients at ``path`` (k, P); ``share`` is its weight
    in the mean loss.
    """

    curvature: KroneckerCurvature
    weights: Tensor
    path: Tensor
    share: float

    def __call__(self, x: Tensor, label: int) -> Tensor:
        """Return the effect of the record ``x`` of class ``label``; it has a slope where x has."""
        own_x = x if x.requires_grad else x.detach().requires_grad_(True)
        scores, passes = self.curvature.chain.forward(self._matrices, own_x[None])
        losses = -scores.log_softmax(dim=-1)[..., label]
        wanted = [one.scores for one in passes]
        signals = torch.autograd.grad(losses.sum(), wanted, create_graph=True)
        found = []
        parts = zip(self.curvature.bases, self._weights, passes, signals, strict=True)
        for (out, own), weight, one, signal in parts:
            rows, signal = one.rows[:, 0] @ own, signal[:, 0] @ out
            if rows.shape[1] == 1:
                gradient = signal.transpose(1, 2) * rows
            else:
                gradient = signal.transpose(1, 2) @ rows
            found.append((weight * gradient).sum(dim=0).flatten())
        effect = self.share * torch.cat(found)
        return effect if x.requires_grad else effect.detach()

    @cached_property
    def _matrices(self) -> list[Tensor]:
        return self.curvature.chain.matrices(self.path)

    @cached_property
    def _weights(self) -> list[Tensor]:
        chain = self.curvature.chain
        parts = torch.split(self.weights, [o * i for o, i in chain.shapes], dim=1)
        shaped = zip(parts, chain.shapes, strict=True)
        return [part.view(len(part), *shape) for part, shape in shaped]
