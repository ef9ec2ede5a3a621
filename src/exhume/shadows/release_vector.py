"""A release read as one vector of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from exhume.models.base import misfits
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.release import Outputs, Release, Weights

_SMALLEST_PROBABILITY = 1e-6
Index = NDArray[np.int64]


@dataclass(frozen=True)
class ReleaseVector:
    """Named arrays one after the other, each row by row; ``chosen`` names the layers that count.

    A layer is named as its parameters are, whole (``1.weight``) or by the part before the last dot
    (``1``, weight and bias). ``logarithmic`` reads probabilities as their logarithms minus each
    row's mean: scores up to the constant that softmax removes.
    """

    blocks: tuple[tuple[str, tuple[int, ...]], ...]
    chosen: tuple[str, ...] | None = None
    logarithmic: bool = False

    @classmethod
    def of(cls, release: Release) -> ReleaseVector:
        """Return the layout of a release; the queries of answers are the adversary's own."""
        return cls(tuple((name, array.shape) for name, array in _arrays(release).items()))

    @property
    def whole(self) -> int:
        """The number of values in a release, chosen or not."""
        return sum(math.prod(shape) for _, shape in self.blocks)

    def mismatch(self, release: Release) -> str | None:
        """Return why a release has another layout, or None; it may have more buffers."""
        blocks, arrays = dict(self.blocks), _arrays(release)
        if isinstance(release, Weights):
            own = blocks.keys() | release.parameters.keys()
            arrays = {name: array for name, array in arrays.items() if name in own}
        for reason in misfits(blocks, arrays):
            return reason
        if self.chosen == ():
            return "no layer is chosen: name one, or omit layers"
        for layer in self.chosen or ():
            if not any(_belongs(name, layer) for name, _ in self.blocks):
                names = ", ".join(name for name, _ in self.blocks)
                return f"there is no layer {layer!r}; the layers are {names}"
        return None

    def vector(self, release: Release) -> FloatArray:
        """Return every number of a release (whole,), float64, before layers are chosen."""
        return np.asarray(self.read(self.raw(release)[None])[0])

    def raw(self, release: Release) -> FloatArray:
        """Return the numbers of a release as they were published (whole,), float64."""
        arrays = _arrays(release)
        parts = [np.asarray(arrays[name], dtype=np.float64).ravel() for name, _ in self.blocks]
        return np.concatenate(parts)

    def vectors(self, releases: Sequence[Release]) -> FloatArray:
        """Return releases laid out like this as rows (k, whole)."""
        return np.array([self.vector(release) for release in releases])

    def read(self, values: FloatArray) -> FloatArray:
        """Return numbers (k, whole) in the form that is compared: logarithms if requested."""
        if not self.logarithmic:
            return values
        (_, shape) = self.blocks[0]
        logs = np.log(np.maximum(values, _SMALLEST_PROBABILITY)).reshape(len(values), *shape)
        return np.asarray((logs - logs.mean(axis=2, keepdims=True)).reshape(values.shape))

    def columns(self) -> Index:
        """Return the places of the chosen numbers."""
        return np.concatenate([np.arange(*ends) for _, ends in self._spans()])

    def first_block(self) -> int:
        """Return how many of the chosen numbers belong to the first chosen array."""
        (_, (start, end)) = self._spans()[0]
        return end - start

    def _spans(self) -> list[tuple[str, tuple[int, int]]]:
        found, start = [], 0
        for name, shape in self.blocks:
            end = start + math.prod(shape)
            if self.chosen is None or any(_belongs(name, layer) for layer in self.chosen):
                found.append((name, (start, end)))
            start = end
        return found


def _belongs(name: str, layer: str) -> bool:
    return name == layer or name.rpartition(".")[0] == layer


def _arrays(release: Release) -> dict[str, Array]:
    return {"values": release.values} if isinstance(release, Outputs) else dict(release.arrays())
