"""The curvature of a training's loss along its path, in Kronecker factors (George et al. 2018).

Per layer the Gauss–Newton matrix is nearly diagonal in the basis U_in ⊗ U_out, the eigenvectors of
the second moments of the layer's rows and of its signals. The basis is one for the whole training,
the diagonal follows the steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from exhume.attacks.informed.trajectory.linear_response.chain import Chain

_TILE = 50
"""Records at a time: their signals fit the processor's caches."""


@dataclass(frozen=True, eq=False)
class KroneckerCurvature:
    """The bases (U_out, U_in) of every layer, and the diagonal (P,) at some steps.

    Coordinates are those of the layers' matrices U_outᵀ·M·U_in, flattened one after the other.
    """

    chain: Chain
    bases: list[tuple[Tensor, Tensor]]
    steps: tuple[int, ...]
    diagonals: Tensor

    def at(self, step: int) -> Tensor:
        """Return the diagonal at a step, interpolated."""
        place = float(np.interp(step, self.steps, range(len(self.steps))))
        before = min(int(place), len(self.steps) - 1)
        after = min(before + 1, len(self.steps) - 1)
        return torch.lerp(self.diagonals[before], self.diagonals[after], place - before)

    def rotated(self, theta: Tensor) -> Tensor:
        """Return a vector of parameters (P,) in the coordinates of the bases."""
        parts = zip(self.bases, self.chain.matrices(theta[None]), strict=True)
        return torch.cat([(out.T @ one[0] @ own).flatten() for (out, own), one in parts])


def measured_curvature(
    chain: Chain, path: Tensor, steps: tuple[int, ...], x: Tensor, mass: float
) -> KroneckerCurvature:
    """Return the curvature at θ ``path`` (k, P) of the given ``steps``, on the records ``x``.

    ``mass`` is the sum of all records' weights over their number. The basis averages every other
    step.
    """
    moments = [(x.new_zeros(o, o), x.new_zeros(i, i)) for o, i in chain.shapes]
    for theta in path[::2]:
        for tile in torch.split(x, _TILE):
            for moment, (rows, signals) in zip(moments, seen(chain, theta, tile), strict=True):
                flat = signals.reshape(-1, signals.shape[-1])
                moment[0].addmm_(flat.T, flat)
                flat = rows.reshape(-1, rows.shape[-1])
                moment[1].addmm_(flat.T, flat)
    bases = [(torch.linalg.eigh(a)[1], torch.linalg.eigh(b)[1]) for a, b in moments]
    diagonals = torch.stack([_diagonal(chain, bases, theta, x) for theta in path])
    return KroneckerCurvature(chain, bases, steps, diagonals * (mass / len(x)))


def seen(chain: Chain, theta: Tensor, x: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return every layer's rows (n, positions, in) and signals (outputs, n, positions, out).

    Summed over ``outputs``, the squares of signalᵀ·row make the Gauss–Newton matrix of the
    cross-entropy: signals start as the columns of a root of its curvature in the scores.
    """
    scores, passes = chain.forward(chain.matrices(theta[None]), x.detach().requires_grad_(True))
    wanted = [one.scores for one in passes]
    p = scores.detach().softmax(dim=-1)
    each = []
    for column in range(p.shape[-1]):
        start = -p * p[..., column : column + 1].sqrt()
        start[..., column] += p[..., column].sqrt()
        each.append(torch.autograd.grad(scores, wanted, start, retain_graph=True))
    signals = [torch.cat(parts) for parts in zip(*each, strict=True)]
    return [(one.rows[0].detach(), own) for one, own in zip(passes, signals, strict=True)]


def _diagonal(chain: Chain, bases: list[tuple[Tensor, Tensor]], theta: Tensor, x: Tensor) -> Tensor:
    """Return the diagonal (P,) of the summed Gauss–Newton matrix in the bases."""
    totals = [x.new_zeros(shape) for shape in chain.shapes]
    for tile in torch.split(x, _TILE):
        layers = zip(totals, bases, seen(chain, theta, tile), strict=True)
        for total, (out, own), (rows, signals) in layers:
            rows, signals = rows @ own, signals @ out
            if rows.shape[1] == 1:
                total.addmm_(signals[:, :, 0].square().sum(dim=0).T, rows[:, 0].square())
                continue
            for one in signals:
                total += (one.transpose(1, 2) @ rows).square().sum(dim=0)
    return torch.cat([total.flatten() for total in totals])
