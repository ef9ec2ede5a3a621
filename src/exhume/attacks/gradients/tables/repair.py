"""Admissible rows made better: one level or label at a time, and the numbers between.

Everything is judged by the residual of the release that the rows would have given.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from exhume.attacks.gradients.matching.loop import MatchingProblem
from exhume.attacks.gradients.tables.restarts import Releases
from exhume.attacks.gradients.tables.search import squared_residuals
from exhume.protocol.schema import Schema

_TOGETHER = 256
"""How many changes are tried in one pass."""
_ROUNDS = 12
"""The most steps on the numbers between changes of levels."""
_SHIFT = 1e-6
"""The difference that stands for a derivative, in units of how far numbers lie apart."""
_DAMPINGS = (-12, -8, -6, -4, -3, -2, -1, 0, 1)
"""Powers of ten of the damping, relative to the mean square of the derivatives."""
_LEAST = 2000
"""At least this many numbers of a release are fitted."""
ROUNDING = 1e-12
"""A relative squared residual below it is rounding: nothing is left to repair."""


@dataclass(frozen=True, eq=False)
class Repair:
    """Improves rows (n, width) with labels (n,) that a table can hold.

    ``changes`` is the most changes that are made; ``labels_free`` says whether labels may change.
    """

    problem: MatchingProblem
    schema: Schema
    releases: Releases
    labels_free: bool
    changes: int

    def improved(self, rows: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, float]:
        """Return better rows and labels, and their relative squared residual.

        Numbers are fitted both before and after a change: a wrong label can lead them astray.
        """
        best = rows, labels, float(self._left(rows[None], labels[None]))
        for number in range(self.changes + 1):
            tried = [best[:2]]
            changed = self._best_change(*best[:2]) if number < self.changes else None
            tried += [] if changed is None else [changed]
            ends = [(*self.settled(*one), one[1]) for one in tried]
            after, left, own = min(ends, key=lambda end: end[1])
            if not left < best[2]:
                break
            best = after, own, left
            if left <= ROUNDING:
                break
        return best

    def settled(self, rows: Tensor, labels: Tensor) -> tuple[Tensor, float]:
        """Fit the numbers of the rows, their levels as they are, by Levenberg–Marquardt steps.

        Derivatives are differences over many starts in one pass. Each step is the best of several
        dampings: long ones cross the ReLUs that stop a line search.
        """
        left = float(self._left(rows[None], labels[None]))
        units = self._units(rows)
        for _ in range(_ROUNDS if len(units) else 0):
            if left <= ROUNDING:
                break
            tried = self._steps(rows, labels, units)
            after = self._left(tried, labels.expand(len(tried), *labels.shape))
            place = int(after.nan_to_num(torch.inf).argmin())
            if not float(after[place]) < left:
                break
            rows, left = tried[place], float(after[place])
        return rows, left

    def _steps(self, rows: Tensor, labels: Tensor, units: Tensor) -> Tensor:
        """Return rows (dampings, n, width) after a step on the entries of ``units`` (k, n, width).

        If the release is long, the step is fitted to some of it.
        """
        moved = torch.cat([rows[None], rows + _SHIFT * units])
        target = torch.cat([t.flatten() for t in self.problem.released.values])
        kept = max(_LEAST, 8 * len(units))
        chosen = target.abs().topk(min(kept, len(target))).indices
        made = torch.cat(
            [self._made(part, labels)[:, chosen] for part in torch.split(moved, _TOGETHER)]
        )
        slopes = (made[1:] - made[0]) / _SHIFT
        normal, pull = slopes @ slopes.T, slopes @ (target[chosen] - made[0])
        size = normal.diagonal().mean()
        eye = torch.eye(len(units), dtype=rows.dtype, device=rows.device)
        moves = [
            torch.linalg.solve_ex(normal + size * 10.0**power * eye, pull)[0] for power in _DAMPINGS
        ]
        tried = rows + torch.einsum("dk,knw->dnw", torch.stack(moves), units)
        return self.problem.completed(tried)

    def _made(self, rows: Tensor, labels: Tensor) -> Tensor:
        """Return the whole release of each of several rows (k, n, width), flat."""
        made = self.releases(rows, labels.expand(len(rows), *labels.shape))
        return torch.cat([g.detach().flatten(1) for g in made], dim=1)

    def _best_change(self, rows: Tensor, labels: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return the rows and labels with the one change that helps most, or None."""
        best: tuple[Tensor, Tensor] | None = None
        lowest = float(self._left(rows[None], labels[None]))
        tried: list[tuple[Tensor, Tensor]] = []
        for change in self._changes(rows, labels):
            tried.append(change)
            if len(tried) == _TOGETHER:
                best, lowest = self._better(tried, best, lowest)
                tried = []
        return self._better(tried, best, lowest)[0] if tried else best

    def _better(
        self,
        tried: list[tuple[Tensor, Tensor]],
        best: tuple[Tensor, Tensor] | None,
        lowest: float,
    ) -> tuple[tuple[Tensor, Tensor] | None, float]:
        rows, labels = (torch.stack(parts) for parts in zip(*tried, strict=True))
        left = self._left(rows, labels)
        place = int(left.argmin())
        found = float(left[place])
        return (tried[place], found) if found < lowest else (best, lowest)

    def _changes(self, rows: Tensor, labels: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        for column, place in zip(self.schema.columns, self.schema.places, strict=True):
            for row in range(0 if column.kind.numeric else len(rows)):
                own = int(rows[row, place].argmax())
                for level in range(column.width):
                    if level != own:
                        other = rows.clone()
                        other[row, place] = 0.0
                        other[row, place.start + level] = 1.0
                        yield self.problem.completed(other), labels
        if not self.labels_free or labels.is_floating_point():
            return
        for row in range(len(rows)):
            for label in range(self.problem.simulation.objective.network.outputs):
                if label != int(labels[row]):
                    others = labels.clone()
                    others[row] = label
                    yield rows, others

    def _left(self, rows: Tensor, labels: Tensor) -> Tensor:
        """Return the relative squared residual of each of several rows (k, n, width), (k,)."""
        return squared_residuals(self.releases(rows, labels), self.problem).detach()

    def _units(self, rows: Tensor) -> Tensor:
        """Return one array (n, width) per unknown number, with a usual difference in its place."""
        apart = rows.std(dim=0, correction=0)
        usual = rows.abs().mean(dim=0).clamp_min(1e-3)
        size = torch.where(apart > 1e-6 * usual, apart, usual)
        found = []
        for column, place in zip(self.schema.columns, self.schema.places, strict=True):
            for row in range(len(rows) if column.kind.numeric else 0):
                absent = column.missing and bool(rows[row, place.start + 1] > 0.5)
                unit = torch.zeros_like(rows)
                unit[row, place.start] = size[place.start]
                if not absent and bool((self.problem.completed(unit) != 0).any()):
                    found.append(unit)
        return torch.stack(found) if found else rows.new_zeros((0, *rows.shape))
