"""A map of records to releases in which some unknowns are known: attribute inference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from exhume.attacks.estimators.refit_search import Searched
from exhume.attacks.estimators.release_map import Shadow, UnknownChoice
from exhume.protocol.arrays import Array, FloatArray


@dataclass(eq=False)
class HeldUnknowns:
    """Another map with the unknowns at ``places`` held at ``values``, in standard units."""

    inner: Searched
    places: Array
    values: FloatArray

    @property
    def fits(self) -> int:
        """The fits so far."""
        return self.inner.fits

    @property
    def noise(self) -> float:
        """The deviation of a fit's random part."""
        return self.inner.noise

    @property
    def fine(self) -> float:
        """The same over the shortest steps."""
        return self.inner.fine

    @property
    def shadows(self) -> Sequence[Shadow]:
        """The shadows of the other map."""
        return self.inner.shadows

    @property
    def free(self) -> Array:
        """The unknowns on a line that are not held."""
        return np.setdiff1d(self.inner.free, self.places)

    @property
    def choices(self) -> Sequence[UnknownChoice]:
        """The choices that are not held."""
        held = set(self.places.tolist())
        return [choice for choice in self.inner.choices if not held & set(choice.places)]

    def start(self, unknowns: FloatArray) -> FloatArray:
        """Return a record with what is held."""
        moved = self.inner.start(unknowns).copy()
        moved[self.places] = self.values
        return moved

    def missing(self, unknowns: FloatArray) -> int:
        """Return how many cells of a record are missing."""
        return self.inner.missing(unknowns)

    def __call__(self, unknowns: FloatArray) -> FloatArray | None:
        """Return the release of a record that has what is held."""
        return self.inner(unknowns)
