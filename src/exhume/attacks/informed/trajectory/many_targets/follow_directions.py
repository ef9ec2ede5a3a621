"""Changes of a record along the widest directions of the fixed set, followed through training.

The widest directions of the fixed set's inputs and the deeper layers move together. They follow the
Hessian of the fixed set's loss at θ₋(t), which is the same for all records. The record's own
gradient changes with the record and with the network. Narrow directions of similar width share a
curvature.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from exhume.attacks.informed.trajectory.many_targets.first_layer_inverse import (
    Heard,
    Preconditioner,
)
from exhume.derivatives.objective import Loss
from exhume.protocol.arrays import FloatArray
from exhume.training.fixed_set_run import Nominal, RecordedStep
from exhume.training.linearised import Curvature, Hessian, unlinearisable
from exhume.training.many_mlps import Targets
from exhume.training.optimisers import SGD

_WIDE = (128, 96, 64, 48, 32, 16)
_BYTES = 1 << 28
"""The most memory for what all records share: one Hessian per step, and the couplings."""
_SIMULATIONS = 3.0
"""The highest cost of following all directions of one record, in simulations."""
_OVERHEAD = 1e7
"""The number of multiplications that take as long as a step of the smallest training."""
_SCORED = 24
_GROUPS = 8
"""Narrow directions of similar width share a curvature while a wide one is followed."""
_WINDOWS = 6


class FollowedDirections:
    """What all records of a training share: its Hessians, and the directions to follow.

    ``wide`` is the number of wide directions (0: even one costs too much). ``scored`` (q, inputs)
    are other directions of the first layer's weights: a record changes its own signal through them.
    ``groups`` are the slices of narrow directions that share a curvature.
    """

    def __init__(self, preconditioner: Preconditioner) -> None:
        self.preconditioner, self.nominal = preconditioner, preconditioner.nominal
        self.wide = _affordable(self.nominal)
        self.steps: list[_Step] = []
        self.scored: FloatArray = np.zeros((0, self.nominal.widths[0]))
        if self.wide:
            self.scored = self._scored()
            self._prepare()

    def _scored(self) -> FloatArray:
        """Return the part of the first layer's rows outside the wide directions, (q, inputs)."""
        rows = np.concatenate([step.first[:, :-1] for step in self.nominal.steps()])
        rows = rows[:: max(1, len(rows) // 2000)]
        wide = np.linalg.qr(self.nominal.basis[:-1, : self.wide])[0]
        _, sizes, right = np.linalg.svd(rows - (rows @ wide) @ wide.T, full_matrices=False)
        return np.asarray(right[:_SCORED][sizes[:_SCORED] > 1e-6 * sizes[0]])

    def _prepare(self) -> None:
        nominal, own = self.nominal, self.preconditioner
        rank = nominal.basis.shape[1]
        edges = np.unique(np.geomspace(self.wide, rank, _GROUPS + 1).round().astype(int))
        self.groups = [slice(a, b) for a, b in pairwise(edges.tolist())]
        both = np.vstack([nominal.basis[:-1, : self.wide].T, self.scored])
        full = np.hstack([both, np.zeros((len(both), 1))])
        self.leading = nominal.tensor(full @ nominal.basis[:, : self.wide])
        for at, step in enumerate(nominal.steps()):
            curvature = own.curvature[at // own.window]
            groups = [curvature[part].mean(dim=0) for part in self.groups]
            self.steps.append(
                _Step(
                    Hessian.of(nominal, step, leading=self.wide).dense(),
                    torch.stack(groups) if groups else nominal.zeros(0, 1, 1),
                    nominal.tensor(step.first @ full.T),
                    step,
                )
            )
        self._couple(rank)

    def _couple(self, rank: int) -> None:
        """Compute the end of the narrow directions when wide ones and deeper layers move.

        Steps are grouped in windows. Within a window, these moves count as constant.
        """
        nominal, own = self.nominal, self.preconditioner
        optimiser = nominal.training.optimiser
        assert isinstance(optimiser, SGD)
        width, narrow = nominal.widths[1], rank - self.wide
        here = torch.eye(width, dtype=nominal.dtype, device=nominal.device).repeat(narrow, 1, 1)
        later = torch.zeros_like(here)
        count = len(self.steps)
        self.window = -(-count // _WINDOWS)
        size = len(self.steps[0].hessian)
        shape = (-(-count // self.window), narrow * width, size)
        self.coupling = nominal.zeros(*shape)
        for at in range(count - 1, -1, -1):
            effect = later - optimiser.learning_rate * here
            curvature = own.curvature[at // own.window][self.wide :]
            coupled = _coupling(nominal, self.steps[at].nominal, self.wide)
            self.coupling[at // self.window] += (effect @ coupled).view(-1, size)
            here = here + effect @ curvature + optimiser.weight_decay * effect
            later = optimiser.momentum * effect


@dataclass(frozen=True, eq=False)
class _Step:
    """One step: the wide Hessian, each group's curvature, the first layer's directions."""

    hessian: Tensor
    groups: Tensor
    scores: Tensor
    nominal: RecordedStep


@dataclass(frozen=True, eq=False)
class DirectionAnswers:
    """The response of every direction: ``wide`` (k, m, N), ``narrow`` (k, m, r, width).

    ``narrow`` is the narrow directions' response to the wide ones. ``groups`` (G, k, m, width) and
    ``outside`` (k, m, width) are the effects of the record's own gradient in the narrow directions
    and outside the span, per unit of the record there.
    """

    wide: FloatArray
    narrow: FloatArray
    groups: FloatArray
    outside: FloatArray


def follow(shared: FollowedDirections, targets: Targets, heard: Heard) -> DirectionAnswers:
    """Return the end of training for every direction of some records' changes."""
    return _Following(shared, targets, heard).run()


class _Following:
    """Changes of some records along all directions, followed through the training together."""

    def __init__(self, shared: FollowedDirections, targets: Targets, heard: Heard) -> None:
        self.shared, self.targets, self.heard = shared, targets, heard
        nominal = shared.nominal
        count, many = len(targets.rows), len(shared.leading)
        _, self.width, self.outputs = nominal.widths
        self.first = self.width * shared.wide
        size = self.first + self.outputs * (self.width + 1)
        groups = len(shared.groups)
        self.moved = [
            nominal.zeros(size, count, many),
            nominal.zeros(groups, self.width, count, many),
            nominal.zeros(self.width, count, many),
        ]
        self.speed = [torch.zeros_like(part) for part in self.moved]
        inside = targets.inside.T
        self.leading = inside[: shared.wide]
        squared = [inside[part].square().sum(dim=0) for part in shared.groups]
        self.squared = torch.stack(squared) if squared else nominal.zeros(0, count)

    def run(self) -> DirectionAnswers:
        """Return the end of every direction."""
        optimiser = self.shared.nominal.training.optimiser
        assert isinstance(optimiser, SGD)
        at, window = 0, self.shared.window
        wide, groups, outside = self.moved
        columns = wide[0].numel()
        rested = torch.zeros_like(wide)
        narrow = wide.new_zeros(self.shared.coupling.shape[1], columns)
        with torch.no_grad():
            for count, step in enumerate(self.shared.steps, start=1):
                rested += wide
                for speed in self.speed:
                    speed.mul_(optimiser.momentum)
                self.speed[0].flatten(1).addmm_(step.hessian, wide.flatten(1))
                self.speed[1].flatten(2).baddbmm_(step.groups, groups.flatten(2))
                if step.nominal.with_target:
                    self._add_own(step, at)
                    at += 1
                for speed, moved in zip(self.speed, self.moved, strict=True):
                    if optimiser.weight_decay:
                        speed.add_(moved, alpha=optimiser.weight_decay)
                    moved.sub_(speed, alpha=optimiser.learning_rate)
                if count % window == 0 or count == len(self.shared.steps):
                    members = (count - 1) % window + 1
                    coupling = self.shared.coupling[(count - 1) // window]
                    narrow.addmm_(coupling, rested.flatten(1), alpha=1.0 / members)
                    rested.zero_()
        narrow = narrow.view(-1, self.width, *wide.shape[1:])
        return DirectionAnswers(
            _array(wide.permute(1, 2, 0)),
            _array(narrow.permute(2, 3, 0, 1)),
            _array(groups.permute(0, 2, 3, 1)),
            _array(outside.permute(1, 2, 0)),
        )

    def _add_own(self, step: _Step, at: int) -> None:
        """Add the change of the records' own gradients with the records and with the network."""
        wide, groups, outside = self.moved
        first = wide[: self.first].view(self.width, -1, *wide.shape[1:])
        deeper = wide[self.first :].view(self.outputs, self.width + 1, *wide.shape[1:])
        z, error, signal = (
            part[:, at].T for part in (self.heard.scores, self.heard.errors, self.heard.signals)
        )
        nominal = self.shared.nominal
        value, slope, bend = nominal.activation.second(z)
        weight = step.nominal.deeper[0][0]
        score = step.scores[:, None, :] + torch.einsum("wrkm,rk->wkm", first, self.leading)
        score += torch.einsum("gwkm,gk->wkm", groups, self.squared)
        score += outside * self.targets.squared[:, None]
        rise = slope[:, :, None] * score
        known = torch.cat([value, torch.ones_like(value[:1])])
        answer = torch.einsum("ow,wkm->okm", weight, rise)
        answer += torch.einsum("oikm,ik->okm", deeper, known)
        drift = self._drift(error, answer, step.nominal.count)
        back = torch.einsum("oikm,ok->ikm", deeper[:, :-1], error)
        back += torch.einsum("ow,okm->wkm", weight, drift)
        felt = bend * (weight.T @ error)
        change = felt[:, :, None] * score + slope[:, :, None] * back
        speeds = self.speed[0][: self.first].view_as(first)
        speeds += change[:, None] * self.leading[:, :, None]
        speeds += signal[:, None, :, None] * self.shared.leading.T[None, :, None, :]
        later = self.speed[0][self.first :].view_as(deeper)
        later += drift[:, None] * known[:, :, None]
        later[:, :-1] += error[:, None, :, None] * rise
        self.speed[1] += change
        self.speed[2] += change

    def _drift(self, error: Tensor, answer: Tensor, count: int) -> Tensor:
        """Return how the derivatives in the last layer's scores change with the scores."""
        if self.shared.nominal.loss is not Loss.CROSS_ENTROPY:
            return answer / count
        p = (error * count + self.targets.responses.T)[:, :, None]
        return p * (answer - (p * answer).sum(dim=0)) / count


def _affordable(nominal: Nominal) -> int:
    """Return the number of directions that can be followed with all couplings; 0 for none."""
    if unlinearisable(nominal.training) is not None or nominal.widths[1] > 32:
        return 0
    inputs, width, outputs = nominal.widths
    steps = len(nominal._indices)
    seen = sum(len(nominal._rows) if i is None else len(i) for i in nominal._indices)
    simulation = 4.0 * width * nominal.basis.shape[1] * seen + _OVERHEAD * steps
    itemsize = nominal.dtype.itemsize
    for wide in _WIDE:
        size = width * wide + outputs * (width + 1)
        narrow = (nominal.basis.shape[1] - wide) * width
        cost = 2.0 * size * (wide + _SCORED) * (size * steps + narrow * _WINDOWS)
        kept = size * (size * steps + narrow * _WINDOWS) * itemsize
        fits = kept <= _BYTES and cost <= _SIMULATIONS * simulation
        if wide <= nominal.basis.shape[1] // 2 and fits and wide + _SCORED <= inputs:
            return wide
    return 0


def _coupling(nominal: Nominal, step: RecordedStep, wide: int) -> Tensor:
    """Return the Hessian's block (narrow, width, N) between narrow directions and all others."""
    _, width, outputs = nominal.widths
    narrow, last = nominal.basis.shape[1] - wide, outputs * (width + 1)
    found = nominal.zeros(narrow, width, width * wide + last)
    for tile in step.tiles:
        curvature = Curvature(nominal, step, tile)
        leading, rest = tile.inputs[:, :wide].contiguous(), tile.inputs[:, wide:]
        for a in range(width):
            for b in range(a + 1):
                block = rest.T @ (leading * curvature.hidden[a, b][:, None])
                found[:, a, b * wide : (b + 1) * wide] += block
                if a != b:
                    found[:, b, a * wide : (a + 1) * wide] += block
        mixed = (curvature.mixed @ rest).view(width, last, narrow)
        found[:, :, width * wide :] += mixed.permute(2, 0, 1)
    return found


def _array(values: Tensor) -> FloatArray:
    return np.asarray(values.double().cpu().numpy())
