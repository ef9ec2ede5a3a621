"""Releases as vectors, to be compared number by number."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exhume.arrays import FloatArray
from exhume.release import Outputs, Release


@dataclass(frozen=True)
class Layout:
    """The names and shapes of what is released, in order."""

    parts: tuple[tuple[str, tuple[int, ...]], ...]

    @classmethod
    def of(cls, release: Release) -> Layout:
        """Return the layout of a release; the queries of answers are the adversary's own."""
        arrays = [("values", release.values)] if isinstance(release, Outputs) else release.arrays()
        return cls(tuple((name, tuple(array.shape)) for name, array in arrays))

    def vector(self, release: Release) -> FloatArray | None:
        """Return a release as one vector, or None where it is not laid out like this."""
        arrays = dict(release.arrays())
        if {name: tuple(array.shape) for name, array in arrays.items() if name != "queries"} != (
            dict(self.parts)
        ):
            return None
        parts = [np.asarray(arrays[name], dtype=np.float64).ravel() for name, _ in self.parts]
        return np.concatenate(parts) if parts else np.empty(0)

    def vectors(self, releases: list[Release]) -> FloatArray:
        """Return releases of this layout as rows."""
        rows = [self.vector(release) for release in releases]
        return np.array([row for row in rows if row is not None])
