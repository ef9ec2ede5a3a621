"""The training map around one record, cheaply: how the end of training answers a change of it.

The widest directions of the fixed set's inputs and the deeper layers move together, under the
Hessian of the fixed set's loss at θ₋(t), which all records share; the record's own gradient changes
with it and with the network. The many narrow directions hardly feel each other: each has its own
curvature, as in the preconditioner. Wide directions, and those that the first layer's weights
spanned along the training, through which the record changes its own signal, are followed one by
one; the rest is solved direction by direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from exhume.arrays import FloatArray
from exhume.attacks.trajectory.preconditioner import DAMPING, Heard, Preconditioner
from exhume.training.folded import Targets
from exhume.training.linearised import Curvature, Hessian, unlinearisable
from exhume.training.nominal import Nominal, Step
from exhume.training.objective import Loss
from exhume.training.optimisers import SGD

_WIDE = (128, 96, 64, 48, 32, 16)
_BYTES = 1 << 28
"""Of what all records share, at most: a Hessian a step, and the couplings."""
_SIMULATIONS = 3.0
"""What following all directions of one record may cost, in simulations."""
_OVERHEAD = 1e7
"""Multiplications that a step of the smallest training takes the time of."""
_SCORED = 24
_GROUPS = 8
"""Narrow directions of like width share a curvature while a wide one is followed."""
_WINDOWS = 6
_COLUMNS = 512
_QUANTILE = 0.3


@dataclass(frozen=True, eq=False)
class Local:
    """The training map around one record, solved for the record's change.

    The unknowns are the record's change along the wide directions, and how much the narrow ones
    change it along ``scored`` (q, inputs), through which the scores feel them. Their answers are
    ``left · diag(sizes) · rightᵀ``: in the wide directions and the deeper layers, in the narrow
    directions as far as no change along them could have made them, and in what that change would be
    along ``scored``. ``echo`` (m, inputs) is the change that the narrow directions would take the
    answers for; ``within`` (narrow, width) and ``outside`` (width,) are their own answers.
    """

    basis: FloatArray
    scored: FloatArray
    left: FloatArray
    sizes: FloatArray
    right: FloatArray
    echo: FloatArray
    within: FloatArray
    outside: FloatArray

    def coordinates(self, residuals: FloatArray) -> FloatArray:
        """Return residuals (k, P) in units of the record, (k, anything).

        Their squared length is a natural level function (Deuflhard 2004, section 3.3): the plain
        residual's is ruled by a few stiff directions.
        """
        seen, narrow = self._split(residuals)
        if not len(self.sizes):
            return narrow
        part = seen @ self.left
        floor = self._floor
        scaled = part / np.sqrt(self.sizes**2 + floor**2)
        beyond = (seen - part @ self.left.T) / floor
        rest = narrow - self._shares(part, 1.0) @ self.echo
        return np.concatenate([scaled, beyond, rest], axis=1)

    def step(self, residual: FloatArray, damping: float) -> FloatArray:
        """Return the change (inputs,) that answers a residual (P,)."""
        seen, narrow = self._split(residual[None])
        if not len(self.sizes):
            return np.asarray(narrow[0] / (1.0 + damping))
        shares = self._shares(seen @ self.left, damping)[0]
        rest = (narrow[0] - shares @ self.echo) / (1.0 + damping)
        return np.asarray(shares[: self._wide] @ self.basis[:-1, : self._wide].T + rest)

    @property
    def _wide(self) -> int:
        return int(self.basis.shape[1] - len(self.within))

    @property
    def _floor(self) -> float:
        return float(np.quantile(self.sizes, _QUANTILE)) or 1.0

    def _shares(self, part: FloatArray, damping: float) -> FloatArray:
        scale = self.sizes / (self.sizes**2 + damping * self._floor**2 + 1e-300)
        return np.asarray((part * scale) @ self.right.T)

    def _split(self, residuals: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return what the directions have to explain, and the narrow ones' answer to the rest."""
        width, wide = len(self.outside), self._wide
        inputs = len(self.basis)
        count = width * inputs
        weight = residuals[:, : count - width].reshape(-1, width, inputs - 1)
        first = np.concatenate([weight, residuals[:, count - width : count, None]], axis=2)
        rotated = first @ self.basis
        free = float(self.outside @ self.outside) + 1e-300
        narrow = rotated[:, :, wide:].transpose(0, 2, 1)
        along = answers(narrow, self.within, free)
        beyond = self.outside @ first - (self.outside @ rotated) @ self.basis.T
        found = along @ self.basis[:-1, wide:].T + beyond[:, :-1] / (free * (1 + DAMPING))
        if not len(self.sizes):
            return rotated, found
        outputs = (residuals.shape[1] - count) // (width + 1)
        last = residuals[:, count : count + outputs * width].reshape(-1, outputs, width)
        last = np.concatenate([last, residuals[:, count + outputs * width :, None]], axis=2)
        felt = np.sqrt(free) * (found @ self.scored.T)
        leading = rotated[:, :, :wide]
        parts = (leading, last, across(narrow, self.within), felt)
        flat = [part.reshape(len(residuals), -1) for part in parts]
        return np.concatenate(flat, axis=1), found


def answers(narrow: FloatArray, within: FloatArray, free: float) -> FloatArray:
    """Return the changes along narrow directions that explain ``narrow`` (k, r, width), (k, r)."""
    sizes = (within**2).sum(axis=1) + DAMPING * free
    return np.asarray(np.einsum("krw,rw->kr", narrow, within) / sizes)


def across(narrow: FloatArray, within: FloatArray) -> FloatArray:
    """Return what of ``narrow`` (k, r, width) no change along the narrow directions explains."""
    unit = within / (np.linalg.norm(within, axis=1, keepdims=True) + 1e-300)
    return np.asarray(narrow - np.einsum("krw,rw->kr", narrow, unit)[:, :, None] * unit)


class Response:
    """Makes ``Local`` maps; what they share is computed once for a training."""

    def __init__(self, preconditioner: Preconditioner) -> None:
        self.preconditioner, self.nominal = preconditioner, preconditioner.nominal
        self.wide = _affordable(self.nominal)
        self.steps: list[_Step] = []
        self.scored: FloatArray = np.zeros((0, self.nominal.widths[0]))
        if self.wide:
            self.scored = self._scored()
            self._prepare()

    def at(self, x: FloatArray, y: Sequence[float], heard: Heard) -> list[Local]:
        """Return the maps around records ``x`` (k, inputs), given what was ``heard`` of them."""
        found: list[Local] = []
        each = max(1, _COLUMNS // (self.wide + len(self.scored) + 1))
        for start in range(0, len(x), each):
            part = slice(start, start + each)
            found += self._some(x[part], np.asarray(y)[part], heard.of(part))
        return found

    def _scored(self) -> FloatArray:
        """Return what of the first layer's rows is not along wide directions, (q, inputs)."""
        rows = np.concatenate([step.first[:, :-1] for step in self.nominal.steps()])
        rows = rows[:: max(1, len(rows) // 2000)]
        wide = np.linalg.qr(self.nominal.basis[:-1, : self.wide])[0]
        _, sizes, right = np.linalg.svd(rows - (rows @ wide) @ wide.T, full_matrices=False)
        return np.asarray(right[:_SCORED][sizes[:_SCORED] > 1e-6 * sizes[0]])

    def _prepare(self) -> None:
        nominal, own = self.nominal, self.preconditioner
        rank = nominal.basis.shape[1]
        edges = np.unique(np.geomspace(self.wide, rank, _GROUPS + 1).round().astype(int))
        self._groups = [slice(a, b) for a, b in pairwise(edges.tolist())]
        both = np.vstack([nominal.basis[:-1, : self.wide].T, self.scored])
        full = np.hstack([both, np.zeros((len(both), 1))])
        self.leading = nominal.tensor(full @ nominal.basis[:, : self.wide])
        for at, step in enumerate(nominal.steps()):
            curvature = own.curvature[at // own.window]
            groups = [curvature[part].mean(dim=0) for part in self._groups]
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
        """Compute how the narrow directions end where wide ones and deeper layers moved.

        Steps are taken together in windows, in each of which what moves is taken to rest.
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

    def _some(self, x: FloatArray, y: FloatArray, heard: Heard) -> list[Local]:
        within, outside = (
            part.double().cpu().numpy() for part in self.preconditioner.responses(heard.signals)
        )
        if not self.wide:
            return [self._narrow(within[i], outside[i]) for i in range(len(x))]
        targets = Targets.of(self.nominal, x, y)
        answered = _Following(self, targets, heard).run()
        return [self._local(i, targets, within[i], outside[i], answered) for i in range(len(x))]

    def _narrow(self, within: FloatArray, outside: FloatArray) -> Local:
        none = np.zeros((0, self.nominal.widths[0]))
        empty = np.zeros((0, 0))
        return Local(self.nominal.basis, none, empty, np.zeros(0), empty, none, within, outside)

    def _local(
        self,
        i: int,
        targets: Targets,
        within: FloatArray,
        outside: FloatArray,
        answered: _Answered,
    ) -> Local:
        wide, basis = self.wide, self.nominal.basis
        within = within[wide:]
        free = float(outside @ outside) + 1e-300
        record = targets.inside[i].double().cpu().numpy()
        narrow = answered.narrow[i].copy()
        for group, part in enumerate(self._groups):
            own = slice(part.start - wide, part.stop - wide)
            narrow[:, own] += answered.groups[group, i][:, None, :] * record[part][:, None]
        echo = answers(narrow, within, free) @ basis[:-1, wide:].T
        loose = (answered.outside[i] @ outside)[:, None] * targets.outside[i][None, :-1]
        echo += loose / (free * (1 + DAMPING))
        felt = echo @ self.scored.T
        felt[wide:] += np.eye(len(self.scored))
        seen = across(narrow, within).reshape(len(narrow), -1)
        rows = [answered.wide[i], seen, np.sqrt(free) * felt]
        left, values, right = _decomposed(np.concatenate(rows, axis=1))
        return Local(basis, self.scored, left, values, right, echo, within, outside)


@dataclass(frozen=True, eq=False)
class _Step:
    """One step: the wide Hessian, each group's curvature, the first layer's directions."""

    hessian: Tensor
    groups: Tensor
    scores: Tensor
    nominal: Step


@dataclass(frozen=True, eq=False)
class _Answered:
    """Every direction's answer: ``wide`` (k, m, N), ``narrow`` (k, m, r, width) by the wide ones.

    ``groups`` (G, k, m, width) and ``outside`` (k, m, width) are what the record's own gradient
    makes in the narrow directions and outside, for each unit of the record there.
    """

    wide: FloatArray
    narrow: FloatArray
    groups: FloatArray
    outside: FloatArray


class _Following:
    """Changes of some records along all directions, followed through the training together."""

    def __init__(self, response: Response, targets: Targets, heard: Heard) -> None:
        self.response, self.targets, self.heard = response, targets, heard
        nominal = response.nominal
        count, many = len(targets.rows), len(response.leading)
        _, self.width, self.outputs = nominal.widths
        self.first = self.width * response.wide
        size = self.first + self.outputs * (self.width + 1)
        groups = len(response._groups)
        self.moved = [
            nominal.zeros(size, count, many),
            nominal.zeros(groups, self.width, count, many),
            nominal.zeros(self.width, count, many),
        ]
        self.speed = [torch.zeros_like(part) for part in self.moved]
        inside = targets.inside.T
        self.leading = inside[: response.wide]
        squared = [inside[part].square().sum(dim=0) for part in response._groups]
        self.squared = torch.stack(squared) if squared else nominal.zeros(0, count)

    def run(self) -> _Answered:
        """Return where every direction ends."""
        optimiser = self.response.nominal.training.optimiser
        assert isinstance(optimiser, SGD)
        at, window = 0, self.response.window
        wide, groups, outside = self.moved
        columns = wide[0].numel()
        rested = torch.zeros_like(wide)
        narrow = wide.new_zeros(self.response.coupling.shape[1], columns)
        with torch.no_grad():
            for count, step in enumerate(self.response.steps, start=1):
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
                if count % window == 0 or count == len(self.response.steps):
                    members = (count - 1) % window + 1
                    coupling = self.response.coupling[(count - 1) // window]
                    narrow.addmm_(coupling, rested.flatten(1), alpha=1.0 / members)
                    rested.zero_()
        narrow = narrow.view(-1, self.width, *wide.shape[1:])
        return _Answered(
            _array(wide.permute(1, 2, 0)),
            _array(narrow.permute(2, 3, 0, 1)),
            _array(groups.permute(0, 2, 3, 1)),
            _array(outside.permute(1, 2, 0)),
        )

    def _add_own(self, step: _Step, at: int) -> None:
        """Add how the records' own gradients change: with the records, and with the network."""
        wide, groups, outside = self.moved
        first = wide[: self.first].view(self.width, -1, *wide.shape[1:])
        deeper = wide[self.first :].view(self.outputs, self.width + 1, *wide.shape[1:])
        z, error, signal = (
            part[:, at].T for part in (self.heard.scores, self.heard.errors, self.heard.signals)
        )
        nominal = self.response.nominal
        value, slope = nominal.slopes.at(z)
        bend = nominal.slopes.bend(z)
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
        speeds += signal[:, None, :, None] * self.response.leading.T[None, :, None, :]
        later = self.speed[0][self.first :].view_as(deeper)
        later += drift[:, None] * known[:, :, None]
        later[:, :-1] += error[:, None, :, None] * rise
        self.speed[1] += change
        self.speed[2] += change

    def _drift(self, error: Tensor, answer: Tensor, count: int) -> Tensor:
        """Return how the derivatives in the last layer's scores change with the scores."""
        if self.response.nominal.loss is not Loss.CROSS_ENTROPY:
            return answer / count
        p = (error * count + self.targets.responses.T)[:, :, None]
        return p * (answer - (p * answer).sum(dim=0)) / count


def _affordable(nominal: Nominal) -> int:
    """Return how many directions can be followed with all their couplings, 0 for none."""
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


def _coupling(nominal: Nominal, step: Step, wide: int) -> Tensor:
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


def _decomposed(rows: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the singular triplets of rowsᵀ, from the largest on."""
    rows = np.where(np.isfinite(rows), rows, 0.0)
    values, right = np.linalg.eigh(rows @ rows.T)
    values, right = values[::-1], right[:, ::-1]
    kept = values > 1e-12 * max(float(values[0]), 1e-300)
    sizes, right = np.sqrt(values[kept]), right[:, kept]
    return rows.T @ right / sizes, sizes, right
