"""The training map around one record, cheaply: the response of the end of training to a change.

Wide directions, and those that the first layer's weights spanned during training, are followed one
by one (``follow_directions``). The many narrow directions are almost independent. Each has its own
curvature, as in the preconditioner, and is solved by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from exhume.attacks.informed.trajectory.many_targets.first_layer_inverse import (
    DAMPING,
    Heard,
    Preconditioner,
)
from exhume.attacks.informed.trajectory.many_targets.follow_directions import (
    DirectionAnswers,
    FollowedDirections,
    follow,
)
from exhume.protocol.arrays import FloatArray
from exhume.training.many_mlps import Targets

_COLUMNS = 512
_QUANTILE = 0.3


@dataclass(frozen=True, eq=False)
class LocalMap:
    """The training map around one record, solved for the record's change.

    The unknowns are the record's change along the wide directions, and its change along ``scored``
    (q, inputs) by the narrow ones, through which they affect the scores. The responses to the
    unknowns are ``left · diag(sizes) · rightᵀ``. They have three parts: the wide directions and
    deeper layers; the part of the narrow directions that no change along them explains; and the
    rest as a change along ``scored``. ``echo`` (m, inputs) is the change along the narrow
    directions that would look like these responses. ``within`` (narrow, width) and ``outside``
    (width,) are the narrow directions' own responses.
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

        Their squared length is a natural level function (Deuflhard 2004, section 3.3). A few stiff
        directions dominate the plain residual's length.
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
        """Return the change (inputs,) that explains a residual (P,)."""
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
        """Return the residual that the directions must explain, and the change by narrow ones."""
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
    """Return changes along narrow directions that explain ``narrow`` (k, r, width), (k, r)."""
    sizes = (within**2).sum(axis=1) + DAMPING * free
    return np.asarray(np.einsum("krw,rw->kr", narrow, within) / sizes)


def across(narrow: FloatArray, within: FloatArray) -> FloatArray:
    """Return the part of ``narrow`` (k, r, width) that no change along them explains."""
    unit = within / (np.linalg.norm(within, axis=1, keepdims=True) + 1e-300)
    return np.asarray(narrow - np.einsum("krw,rw->kr", narrow, unit)[:, :, None] * unit)


class LocalMaps:
    """Makes ``LocalMap`` objects; computes what they share once per training."""

    def __init__(self, preconditioner: Preconditioner) -> None:
        self.preconditioner = preconditioner
        self.directions = FollowedDirections(preconditioner)

    @property
    def wide(self) -> int:
        """The number of directions that are followed together with the deeper layers."""
        return self.directions.wide

    def at(self, x: FloatArray, y: Sequence[float], heard: Heard) -> list[LocalMap]:
        """Return the maps around records ``x`` (k, inputs), given their signals ``heard``."""
        found: list[LocalMap] = []
        each = max(1, _COLUMNS // (self.wide + len(self.directions.scored) + 1))
        for start in range(0, len(x), each):
            part = slice(start, start + each)
            found += self._some(x[part], np.asarray(y)[part], heard.of(part))
        return found

    def _some(self, x: FloatArray, y: FloatArray, heard: Heard) -> list[LocalMap]:
        within, outside = (
            part.double().cpu().numpy() for part in self.preconditioner.responses(heard.signals)
        )
        if not self.wide:
            return [self._narrow(within[i], outside[i]) for i in range(len(x))]
        targets = Targets.of(self.preconditioner.nominal, x, y)
        answered = follow(self.directions, targets, heard)
        return [self._local(i, targets, within[i], outside[i], answered) for i in range(len(x))]

    def _narrow(self, within: FloatArray, outside: FloatArray) -> LocalMap:
        nominal = self.preconditioner.nominal
        none = np.zeros((0, nominal.widths[0]))
        empty = np.zeros((0, 0))
        return LocalMap(nominal.basis, none, empty, np.zeros(0), empty, none, within, outside)

    def _local(
        self,
        i: int,
        targets: Targets,
        within: FloatArray,
        outside: FloatArray,
        answered: DirectionAnswers,
    ) -> LocalMap:
        wide, basis = self.wide, self.preconditioner.nominal.basis
        scored = self.directions.scored
        within = within[wide:]
        free = float(outside @ outside) + 1e-300
        record = targets.inside[i].double().cpu().numpy()
        narrow = answered.narrow[i].copy()
        for group, part in enumerate(self.directions.groups):
            own = slice(part.start - wide, part.stop - wide)
            narrow[:, own] += answered.groups[group, i][:, None, :] * record[part][:, None]
        echo = answers(narrow, within, free) @ basis[:-1, wide:].T
        loose = (answered.outside[i] @ outside)[:, None] * targets.outside[i][None, :-1]
        echo += loose / (free * (1 + DAMPING))
        felt = echo @ scored.T
        felt[wide:] += np.eye(len(scored))
        seen = across(narrow, within).reshape(len(narrow), -1)
        rows = [answered.wide[i], seen, np.sqrt(free) * felt]
        left, values, right = _decomposed(np.concatenate(rows, axis=1))
        return LocalMap(basis, scored, left, values, right, echo, within, outside)


def _decomposed(rows: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the singular triplets of rowsᵀ, from the largest on."""
    rows = np.where(np.isfinite(rows), rows, 0.0)
    values, right = np.linalg.eigh(rows @ rows.T)
    values, right = values[::-1], right[:, ::-1]
    kept = values > 1e-12 * max(float(values[0]), 1e-300)
    sizes, right = np.sqrt(values[kept]), right[:, kept]
    return rows.T @ right / sizes, sizes, right
