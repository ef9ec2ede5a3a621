"""Records in the space of a pipeline's last step, and back to the user's columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from exhume.attacks.estimators.refit import FittedRelease
from exhume.attacks.estimators.refit_search import search
from exhume.attacks.estimators.release_map import ReleaseMap, Shadow, UnknownChoice
from exhume.protocol.arrays import Array, FloatArray

_TRIES = 150
_MOST_SHADOWS = 200


@dataclass(eq=False)
class EncodedRows:
    """The known records (n, features) after a pipeline's released steps.

    The steps are fitted on what is known, and hold the released numbers.
    """

    problem: FittedRelease

    @cached_property
    def steps(self) -> Any | None:
        """The released steps before the last one; None if there are none."""
        return self.problem.estimator.steps_before(self.problem.attributes, self.problem.known)

    @cached_property
    def rows(self) -> FloatArray:
        """The known records as the last step saw them."""
        return self.after(np.asarray(self.problem.known.x))

    def after(self, x: Array) -> FloatArray:
        """Return records (n, *shape) as the last step sees them."""
        if self.steps is None:
            return np.asarray(x, dtype=np.float64).reshape(len(x), -1)
        rows = self.steps.transform(self.problem.estimator.rows(x))
        dense = rows.toarray() if hasattr(rows, "toarray") else rows
        return np.asarray(dense, dtype=np.float64)

    def back(self, wanted: FloatArray, weights: FloatArray | None = None) -> FloatArray:
        """Return the records (k, features) whose encoding is nearest to ``wanted`` (features,).

        The best comes first; the others explain it as well. ``weights`` say how sure each entry is.
        """
        if self.steps is None:
            return wanted[None]
        map_ = StepsMap(self, weights)
        best = search(map_, map_.standard(wanted), fits=_TRIES)
        if best is None:
            return np.empty((0, self.problem.rows.shape[1]))
        units = map_.units
        return np.stack([units.rounded(units.record(x)[0]) for x in (best.unknowns, *best.alike)])


class StepsMap:
    """Maps a record to its encoding, both in standard units: to search for a record's columns."""

    noise = fine = 1e-10

    def __init__(self, encoded: EncodedRows, weights: FloatArray | None) -> None:
        known = encoded.problem.known
        self.encoded, self.fits = encoded, 0
        # A class has no response among its unknowns: steps don't see labels.
        self.units = ReleaseMap(encoded.problem.estimator, known, known.labels[0])
        rows = encoded.rows
        self.middle, spread = rows.mean(axis=0), rows.std(axis=0)
        self.scale = np.where(spread > 0, spread, 1.0)
        self.scale = self.scale if weights is None else self.scale / weights

    def standard(self, encoded: FloatArray) -> FloatArray:
        """Return an encoding in standard units."""
        return np.asarray((encoded - self.middle) / self.scale)

    @property
    def free(self) -> Array:
        """The unknowns that lie on a line."""
        return self.units.free

    @property
    def choices(self) -> Sequence[UnknownChoice]:
        """The unknowns that have one of a few values."""
        return self.units.choices

    @cached_property
    def shadows(self) -> Sequence[Shadow]:
        """Known records with their encodings."""
        rows = (self.units.rows - self.units.centre) / self.units.unit
        pairs = zip(rows, self.standard(self.encoded.rows), strict=True)
        return [Shadow(*pair) for pair in pairs][:_MOST_SHADOWS]

    def start(self, unknowns: FloatArray) -> FloatArray:
        """Return the nearest record that the table can hold."""
        return self.units.start(unknowns)

    def missing(self, unknowns: FloatArray) -> int:
        """Return how many cells of a record are missing."""
        return self.units.missing(unknowns)

    def __call__(self, unknowns: FloatArray) -> FloatArray | None:
        """Return a record's encoding; None if the steps refuse it."""
        self.fits += 1
        x, _ = self.units.record(unknowns)
        try:
            return self.standard(self.encoded.after(x[None])[0])
        except ValueError:
            return None
