"""How an input's change answers in the first layer: a cheap inverse of the training map.

In the basis of the fixed set's inputs, the direction j of the target moves the first layer's
weights in that same direction, by a vector of one number a hidden unit: the target's own signal
δ(t), fed through the curvature of the fixed set's loss. Directions are coupled by the rest of the
Hessian only, and by δ(t) changing with the input; secants learn what is left out here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from exhume.arrays import Array, FloatArray
from exhume.training.folded import FoldedSimulator, Moved, Targets, add_target
from exhume.training.nominal import Nominal, Step, Tile
from exhume.training.optimisers import SGD

_CURVATURE_NUMBERS = 1 << 26
"""Curvatures are averaged over neighbouring steps where more numbers would have to be kept."""
_WIDE = 32
"""Hidden layers wider than this keep the diagonal of each direction's curvature only."""
DAMPING = 3e-3
"""Of the response outside the span, which no record of the fixed set dampens."""


@dataclass(frozen=True, eq=False)
class Heard:
    """What records were to their networks, at every step that they take part in.

    ``scores`` (k, T, width) of the first layer; the derivatives of a step's mean loss in the last
    layer's scores, ``errors`` (k, T, outputs), and in the first layer's, ``signals``
    (k, T, width).
    """

    scores: Tensor
    errors: Tensor
    signals: Tensor

    def of(self, part: slice) -> Heard:
        """Return some of the records'."""
        return Heard(self.scores[part], self.errors[part], self.signals[part])

    @classmethod
    def joined(cls, parts: Sequence[Heard]) -> Heard:
        """Return the records of all parts, in order."""
        return cls(
            torch.cat([one.scores for one in parts]),
            torch.cat([one.errors for one in parts]),
            torch.cat([one.signals for one in parts]),
        )


@dataclass(frozen=True, eq=False)
class Simulated:
    """Trainings with a record each: θ − base (k, P), and what the record was along the way."""

    differences: FloatArray
    heard: Heard


class SignalSimulator(FoldedSimulator):
    """The folded engine, keeping what each target's own gradient was along the way."""

    def simulate(self, x: Array, y: Array) -> Simulated:
        """Return what training with each of the records ``x`` (k, *record shape) ends in."""
        rows = np.asarray(x, dtype=np.float64).reshape(len(x), -1)
        found, along = [], []
        with torch.no_grad():
            for start in range(0, len(rows), self.chunk):
                part = slice(start, start + self.chunk)
                targets = Targets.of(self.nominal, rows[part], np.asarray(y)[part])
                difference, heard = self._listened(targets)
                found.append(difference)
                along.append(heard)
        return Simulated(np.concatenate(found), Heard.joined(along))

    def _listened(self, targets: Targets) -> tuple[FloatArray, Heard]:
        """Return what ``differences`` does of some targets, and what was heard of them."""
        optimiser = self.training.optimiser
        assert isinstance(optimiser, SGD)
        moved, velocity = (Moved.zero(self.nominal, len(targets.rows)) for _ in range(2))
        heard = []
        for step in self.nominal.steps():
            velocity.multiply(optimiser.momentum)
            for tile in step.tiles:
                self._add_tile(step, tile, moved, velocity)
            if step.with_target:
                heard.append(add_target(self.nominal, step, targets, moved, velocity))
            if optimiser.weight_decay:
                velocity.add(moved, optimiser.weight_decay)
            moved.add(velocity, -optimiser.learning_rate)
        along = Heard(*(torch.stack(part, dim=1) for part in zip(*heard, strict=True)))
        return moved.unrotated(self.nominal, targets.outside), along


class Preconditioner:
    """The approximate inverse of x ↦ θ(x): one response a direction of the fixed set's inputs."""

    def __init__(self, nominal: Nominal) -> None:
        self.nominal = nominal
        self.takes_part: list[bool] = []
        self.window, self.curvature = self._curvatures()
        self._basis = nominal.tensor(nominal.basis)

    def steps(self, residuals: FloatArray, signals: Tensor) -> FloatArray:
        """Return changes of the inputs (k, inputs) that would answer ``residuals`` (k, P).

        ``signals`` (k, T, width) are those of the last simulation of each record.
        """
        within, outside = self.responses(signals)
        width, inputs = self.nominal.widths[1], self.nominal.widths[0]
        weight = residuals[:, : width * inputs].reshape(-1, width, inputs)
        bias = residuals[:, width * inputs : width * (inputs + 1), None]
        first = self.nominal.tensor(np.concatenate([weight, bias], axis=2))
        rotated = first @ self._basis
        rest = first - rotated @ self._basis.T
        free = outside.square().sum(dim=1) + torch.finfo(within.dtype).tiny
        answer = torch.einsum("kwr,krw->kr", rotated, within)
        answer = answer / (within.square().sum(dim=2) + DAMPING * free[:, None])
        beyond = torch.einsum("kw,kwi->ki", outside, rest) / (free * (1 + DAMPING))[:, None]
        found = answer @ self._basis.T + beyond
        return np.asarray(found[:, :-1].double().cpu().numpy())

    def spread(self, signals: Tensor) -> float:
        """Return by how much noise of size 1 on each parameter moves the input (root mean square).

        ``signals`` (T, width) are one record's.
        """
        within, outside = self.responses(signals[None])
        free = float(outside.square().sum()) + 1e-300
        inside = 1.0 / (within.square().sum(dim=2)[0] + DAMPING * free)
        beyond = self.nominal.basis.shape[0] - self.nominal.basis.shape[1]
        total = float(inside.sum()) + beyond / free
        return float(np.sqrt(total / self.nominal.basis.shape[0]))

    def responses(self, signals: Tensor) -> tuple[Tensor, Tensor]:
        """Return each direction's answer (k, rank, width), and that of one outside (k, width).

        An entry is the change of the first layer's weights along a direction, for one unit of the
        input along it.
        """
        optimiser = self.nominal.training.optimiser
        assert isinstance(optimiser, SGD)
        models, _, width = signals.shape
        rank = self.nominal.basis.shape[1]
        within = signals.new_zeros(rank, width, models)
        outside = signals.new_zeros(width, models)
        speeds = (torch.zeros_like(within), torch.zeros_like(outside))
        heard = iter(signals.permute(1, 2, 0))
        for at, takes_part in enumerate(self.takes_part):
            curvature = self.curvature[at // self.window]
            if curvature.ndim == 3:
                pull = torch.bmm(curvature, within)
            else:
                pull = curvature[:, :, None] * within
            push = torch.zeros_like(outside)
            if takes_part:
                signal = next(heard)
                pull, push = pull + signal, push + signal
            for speed, force, moved in zip(speeds, (pull, push), (within, outside), strict=True):
                if optimiser.weight_decay:
                    force = force + optimiser.weight_decay * moved
                speed.mul_(optimiser.momentum).add_(force)
                moved.sub_(speed, alpha=optimiser.learning_rate)
        return within.permute(2, 0, 1).contiguous(), outside.T.contiguous()

    def _curvatures(self) -> tuple[int, Tensor]:
        """Return, a window of steps, each direction's block of the Hessian of the mean loss.

        The blocks are (windows, rank, width, width), or (windows, rank, width) of wide layers.
        """
        width, rank = self.nominal.widths[1], self.nominal.basis.shape[1]
        each = rank * (width if width > _WIDE else width * width)
        count = len(self.nominal._indices)
        window = -(-count * each // _CURVATURE_NUMBERS)
        shape = (rank, width) if width > _WIDE else (rank, width, width)
        found = self.nominal.zeros(-(-count // window), *shape)
        for at, step in enumerate(self.nominal.steps()):
            self.takes_part.append(step.with_target)
            for tile in step.tiles:
                found[at // window] += self._direction_blocks(step, tile, shape)
        members = np.bincount(np.arange(count) // window)
        return window, found / self.nominal.tensor(members.astype(np.float64)).view(
            -1, *[1] * len(shape)
        )

    def _direction_blocks(self, step: Step, tile: Tile, shape: tuple[int, ...]) -> Tensor:
        curvature = _score_curvature(step, tile, self.nominal)
        if len(shape) == 2:
            curvature = torch.diagonal(curvature, dim1=1, dim2=2)
        flat = curvature.reshape(len(curvature), -1)
        return (tile.inputs.square().T @ flat).view(shape)


def _score_curvature(step: Step, tile: Tile, nominal: Nominal) -> Tensor:
    """Return ∂²loss / ∂z² of each record (m, width, width), z the first layer's scores."""
    if tile.p is None:
        unit = torch.eye(nominal.widths[-1], dtype=tile.share.dtype, device=tile.share.device)
        curvature = tile.share[:, None, None] * unit
    else:
        p = tile.p.T
        curvature = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
        curvature = tile.share[:, None, None] * curvature
    for layer in range(len(step.deeper) - 1, -1, -1):
        slope, z = tile.slope[layer].T, tile.z[layer]
        felt = step.deeper[layer][0].T @ curvature @ step.deeper[layer][0]
        curvature = slope[:, :, None] * felt * slope[:, None, :]
        bend = nominal.slopes.differences(z, torch.full_like(z, 1e-3))[1] / 1e-3
        # No activation here bends by more than 1; a kink would by any amount.
        bent = tile.back[layer] * bend.clamp(-1.0, 1.0)
        curvature = curvature + torch.diag_embed(bent.T)
    return curvature
