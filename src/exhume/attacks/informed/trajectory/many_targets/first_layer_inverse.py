"""The first layer's response to a change of the input: a cheap inverse of the training map.

In the basis of the fixed set's inputs, direction j of the target moves the first layer's weights in
the same direction. The move is a vector of one number per hidden unit: the target's own signal δ(t)
after the curvature of the fixed set's loss. Directions are coupled only by the rest of the Hessian,
and by the change of δ(t) with the input. This file ignores both couplings; secants learn them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from exhume.protocol.arrays import Array, FloatArray
from exhume.training.fixed_set_run import Nominal, RecordedStep, RecordTile
from exhume.training.many_mlps import FoldedSimulator, Moved, Targets, add_target, moved_along
from exhume.training.optimisers import SGD

_CURVATURE_NUMBERS = 1 << 26
"""Curvatures are averaged over neighbouring steps if more numbers than this would be stored."""
_WIDE = 32
"""For hidden layers wider than this, only the diagonal of each direction's curvature is kept."""
DAMPING = 3e-3
"""Damping, relative to the response outside the span; the fixed set does not dampen that one."""


@dataclass(frozen=True, eq=False)
class Heard:
    """The signals of records in their networks, at every step that they take part in.

    ``scores`` (k, T, width) are those of the first layer. ``errors`` (k, T, outputs) are the
    derivatives of a step's mean loss in the last layer's scores, ``signals`` (k, T, width) those in
    the first layer's.
    """

    scores: Tensor
    errors: Tensor
    signals: Tensor

    def of(self, part: slice) -> Heard:
        """Return the signals of some of the records."""
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
    """Trainings with one record each: θ − base (k, P), and the record's signals in them."""

    differences: FloatArray
    heard: Heard


class SignalSimulator(FoldedSimulator):
    """The folded engine, which also keeps each target's own gradient."""

    def simulate(self, x: Array, y: Array) -> Simulated:
        """Return the end of training with each of the records ``x`` (k, *record shape)."""
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
        """Return ``differences`` for some targets, with the signals of their records."""
        heard = []

        def add_gradient(step: RecordedStep, moved: Moved, velocity: Moved) -> None:
            for tile in step.tiles:
                self._add_tile(step, tile, moved, velocity)
            if step.with_target:
                heard.append(add_target(self.nominal, step, targets, moved, velocity))

        moved = moved_along(self.nominal, len(targets.rows), add_gradient)
        along = Heard(*(torch.stack(part, dim=1) for part in zip(*heard, strict=True)))
        return moved.unrotated(self.nominal, targets.outside), along


class Preconditioner:
    """The approximate inverse of x ↦ θ(x): one response per direction of the fixed set's inputs."""

    def __init__(self, nominal: Nominal) -> None:
        self.nominal = nominal
        self.takes_part: list[bool] = []
        self.window, self.curvature = self._curvatures()
        self._basis = nominal.tensor(nominal.basis)

    def steps(self, residuals: FloatArray, signals: Tensor) -> FloatArray:
        """Return changes of the inputs (k, inputs) that explain ``residuals`` (k, P).

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
        """Return the input's change (root mean square) due to noise of size 1 on each parameter.

        ``signals`` (T, width) are those of one record.
        """
        within, outside = self.responses(signals[None])
        free = float(outside.square().sum()) + 1e-300
        inside = 1.0 / (within.square().sum(dim=2)[0] + DAMPING * free)
        beyond = self.nominal.basis.shape[0] - self.nominal.basis.shape[1]
        total = float(inside.sum()) + beyond / free
        return float(np.sqrt(total / self.nominal.basis.shape[0]))

    def responses(self, signals: Tensor) -> tuple[Tensor, Tensor]:
        """Return each direction's response (k, rank, width), and one outside the span (k, width).

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
        """Return each direction's block of the Hessian of the mean loss, per window of steps.

        The blocks are (windows, rank, width, width), or (windows, rank, width) for wide layers.
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

    def _direction_blocks(
        self, step: RecordedStep, tile: RecordTile, shape: tuple[int, ...]
    ) -> Tensor:
        curvature = _score_curvature(step, tile, self.nominal)
        if len(shape) == 2:
            curvature = torch.diagonal(curvature, dim1=1, dim2=2)
        flat = curvature.reshape(len(curvature), -1)
        return (tile.inputs.square().T @ flat).view(shape)


def _score_curvature(step: RecordedStep, tile: RecordTile, nominal: Nominal) -> Tensor:
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
        bend = nominal.activation.differences(z, torch.full_like(z, 1e-3))[1] / 1e-3
        # The second derivative of each activation here is at most 1; a kink has no such limit.
        bent = tile.back[layer] * bend.clamp(-1.0, 1.0)
        curvature = curvature + torch.diag_embed(bent.T)
    return curvature
