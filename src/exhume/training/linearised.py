"""Many models at once, to first order, at a cost that does not grow with the records.

θᵢ(t) − θ₋(t) is small, so the fixed set's gradient changes by the Hessian H(t) times it. The
target's own gradient is exact. H(t) is the same for all models: it is computed once per step, in
the basis of the inputs' span, and one matrix product updates every model. This is faster for many
records (more than about half the first layer's rotated weights, width · rank) and thousands of
models: see the measurements in ``docs/explanation/training.md``. The error is that of the
linearisation: some hundredths of the difference at a thousand records and some thousandths at ten
thousand. That is enough for learning from many shadow models, but not for solving for a record.
``RecordByRecord`` follows a few models in the same way without H(t), to measure that error first.

Memory: H(t) takes (width · rank + outputs · (width + 1))² float32 numbers, 187 MB for 784-10-10 on
images of rank 672; all models of a call are updated together, 3 · P numbers each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.errors import InputError
from exhume.protocol.records import Records
from exhume.training.fixed_set_run import Nominal, RecordedStep, RecordTile
from exhume.training.many_mlps import (
    Moved,
    Targets,
    add_target,
    folded,
    moved_along,
    unfoldable,
)
from exhume.training.network import Training
from exhume.training.simulator import Simulator, repeatable

_TILE = 2048
_PANELS = 2


def unlinearisable(training: Training) -> str | None:
    """Return why this engine can't run a training, or None."""
    reason = unfoldable(training)
    if reason is None and len(getattr(training.network, "hidden", ())) != 1:
        reason = "the Hessian is implemented for one hidden layer only"
    return reason


class StepCurvature(Protocol):
    """The Hessian of the fixed set's share of one step's loss, in whatever form."""

    def add_product(self, moved: Moved, gradient: Moved) -> None:
        """Add H · moved to ``gradient``."""


Curvatures = Callable[[Nominal, RecordedStep], StepCurvature]


class LinearisedSimulator(Simulator):
    """Differences to first order, for all models of a call together.

    ``curvatures`` gives the Hessian of a step; by default it is computed from all records.
    """

    def __init__(
        self, training: Training, fixed_set: Records, *, curvatures: Curvatures | None = None
    ) -> None:
        reason = unlinearisable(training)
        if reason is not None:
            raise InputError(reason)
        self.training, self.fixed_set = repeatable(training), fixed_set
        self.nominal = Nominal(self.training, fixed_set, dtype=torch.float32, tile=_TILE)
        self._curvatures = curvatures

    @property
    def base(self) -> FloatArray:
        """Return θ (P,) of the training in which the record has weight 0."""
        return self.nominal.final

    def differences(self, x: Array, y: Array) -> FloatArray:
        """Return θ(xᵢ, yᵢ) − base (k, P) to first order, stepping all models together."""
        self.training.require_shape(x)
        if len(x) == 0:
            return np.empty((0, len(self.base)))
        rows = np.asarray(x, dtype=np.float64).reshape(len(x), int(np.prod(x.shape[1:])))
        targets = Targets.of(self.nominal, rows, np.asarray(y))
        curvatures = self._curvatures or Hessian.of

        def add_gradient(step: RecordedStep, moved: Moved, velocity: Moved) -> None:
            curvatures(self.nominal, step).add_product(moved, velocity)
            if step.with_target:
                add_target(self.nominal, step, targets, moved, velocity)

        with torch.no_grad():
            moved = moved_along(self.nominal, len(rows), add_gradient)
        found = moved.unrotated(self.nominal, targets.outside)
        self.training.require_converged(bool(np.isfinite(found).all()))
        return found


class Hessian:
    """The Hessian of the fixed set's share of one step's loss, with respect to ``Moved``."""

    def __init__(self, first: Tensor, mixed: Tensor, deeper: Tensor) -> None:
        self.first, self.mixed, self.deeper = first, mixed, deeper

    @classmethod
    def of(cls, nominal: Nominal, step: RecordedStep, *, leading: int | None = None) -> Hessian:
        """Return the Hessian at θ₋ of a step, from all its tiles.

        With ``leading``, it uses only that many of the inputs' leading directions.
        """
        _, width, outputs = nominal.widths
        last = outputs * (width + 1)
        rank = nominal.basis.shape[1] if leading is None else leading
        first = nominal.zeros(width, rank, width, rank)
        mixed = nominal.zeros(width * last, rank)
        deeper = nominal.zeros(last, last)
        for tile in step.tiles:
            curvature = Curvature(nominal, step, tile)
            inputs = tile.inputs[:, :rank].contiguous()
            for a in range(width):
                for b in range(a + 1):
                    _add_weighted(first[a, :, b, :], inputs, curvature.hidden[a, b])
            mixed.addmm_(curvature.mixed, inputs)
            deeper.add_(curvature.deeper)
        _complete(first)
        blocks = mixed.view(width, last, rank).transpose(1, 2).reshape(width * rank, last)
        return cls(first.view(width * rank, width * rank), blocks, deeper)

    def dense(self) -> Tensor:
        """Return it as one matrix, the first layer's weights before the deeper ones."""
        upper = torch.cat([self.first, self.mixed], dim=1)
        return torch.cat([upper, torch.cat([self.mixed.T, self.deeper], dim=1)])

    def add_product(self, moved: Moved, gradient: Moved) -> None:
        """Add H · moved to ``gradient``."""
        first, deeper = moved.first.flatten(1), moved.deeper[0].flatten(1)
        gradient.first.flatten(1).addmm_(first, self.first).addmm_(deeper, self.mixed.T)
        gradient.deeper[0].flatten(1).addmm_(first, self.mixed).addmm_(deeper, self.deeper)

    def packed(self, nominal: Nominal) -> dict[str, Array]:
        """Return it as arrays: of the first layer one triangle of every block."""
        width = nominal.widths[1]
        rank = len(self.first) // width
        blocks = self.first.view(width, rank, width, rank)
        pairs = torch.stack([blocks[a, :, b, :] for a in range(width) for b in range(a + 1)])
        triangles = pairs.flatten(1).index_select(1, _triangle(rank))
        found = {"first": triangles, "mixed": self.mixed, "deeper": self.deeper}
        return {name: tensor.cpu().numpy() for name, tensor in found.items()}

    @classmethod
    def unpacked(cls, nominal: Nominal, arrays: Mapping[str, Array]) -> Hessian:
        """Return the Hessian that ``packed`` described."""
        width, rank = nominal.widths[1], nominal.basis.shape[1]
        first = nominal.zeros(width, rank, width, rank)
        block, place, triangles = nominal.zeros(rank, rank), _triangle(rank), iter(arrays["first"])
        for a in range(width):
            for b in range(a + 1):
                block.view(-1)[place] = torch.tensor(next(triangles), device=nominal.device)
                first[a, :, b, :] = block
        _complete(first)
        mixed, deeper = (
            torch.tensor(arrays[name], device=nominal.device) for name in ("mixed", "deeper")
        )
        return cls(first.view(width * rank, width * rank), mixed, deeper)


class RecordByRecord:
    """The same Hessian, of which only products are formed, from each record's curvature.

    The cost per model grows with the records, as an exact simulation does.
    """

    def __init__(self, nominal: Nominal, step: RecordedStep) -> None:
        self._nominal, self._step = nominal, step

    def add_product(self, moved: Moved, gradient: Moved) -> None:
        """Add H · moved to ``gradient``."""
        models, width, rank = moved.first.shape
        own, total = moved.deeper[0].flatten(1), gradient.deeper[0].flatten(1)
        for tile in self._step.tiles:
            curvature = Curvature(self._nominal, self._step, tile)
            mixed = curvature.mixed.view(width, own.shape[1], -1)
            change = folded(moved.first, tile.inputs.T)
            signal = torch.einsum("abm,kbm->kam", curvature.hidden, change)
            signal += torch.einsum("ajm,kj->kam", mixed, own)
            gradient.first.view(-1, rank).addmm_(signal.view(models * width, -1), tile.inputs)
            total += torch.einsum("ajm,kam->kj", mixed, change) + own @ curvature.deeper


@lru_cache(maxsize=2)
def _triangle(size: int) -> Tensor:
    """Return the places of a matrix's lower triangle, row by row."""
    row, column = torch.tril_indices(size, size)
    places: Tensor = row * size + column
    return places


def _add_weighted(block: Tensor, inputs: Tensor, weight: Tensor) -> None:
    """Add Σ wᵢ xᵢxᵢᵀ to a block's lower triangle: three quarters of the work."""
    scaled = inputs * weight[:, None]
    width = -(-len(block) // _PANELS)
    for start in range(0, len(block), width):
        panel = slice(start, start + width)
        block[start:, panel].addmm_(scaled[:, start:].T, inputs[:, panel])


def _complete(first: Tensor) -> None:
    """Fill the upper triangles, within every block and among the blocks."""
    for a in range(len(first)):
        for b in range(a + 1):
            block = first[a, :, b, :].tril()
            first[a, :, b, :] = block + block.tril(-1).T
            first[b, :, a, :] = first[a, :, b, :]


class Curvature:
    """The contribution of each record of a tile to the Hessian, in its scores."""

    def __init__(self, nominal: Nominal, step: RecordedStep, tile: RecordTile) -> None:
        weight, h, slope = step.deeper[0][0], tile.h[0], tile.slope[0]
        outputs, width, count = len(weight), len(slope), slope.shape[1]
        loss = _loss_curvature(tile, outputs)
        reach = weight[:, :, None] * slope
        carried = torch.einsum("oqm,qam->oam", loss, reach)
        bent = nominal.activation.curvature(tile.z[0], tile.h[0][:-1], tile.slope[0]) * tile.back[0]
        self.hidden = torch.einsum("oam,obm->abm", reach, carried)
        self.hidden.diagonal().add_(bent.T)
        mixed = torch.einsum("oam,im->aoim", carried, h)
        delta = tile.delta[1]
        for a in range(width):
            mixed[a, :, a] += delta * slope[a]
        self.mixed = mixed.reshape(-1, count)
        both = torch.einsum("oqm,im,jm->oiqj", loss, h, h)
        self.deeper = both.reshape(outputs * (width + 1), -1)


def _loss_curvature(tile: RecordTile, outputs: int) -> Tensor:
    """Return the loss's second derivative in the scores, (outputs, outputs, m)."""
    if tile.p is None:
        unit = torch.eye(outputs, dtype=tile.share.dtype, device=tile.share.device)
        return unit[:, :, None] * tile.share
    found = -tile.p[:, None] * tile.p[None, :]
    found.diagonal().add_(tile.p.T)
    return found * tile.share
