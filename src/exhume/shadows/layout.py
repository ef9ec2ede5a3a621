"""A release read as one vector of numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from exhume.arrays import Array, FloatArray
from exhume.release import Outputs, Release, Weights

_SMALLEST_PROBABILITY = 1e-6
Index = NDArray[np.int64]


@dataclass(frozen=True)
class Layout:
    """Named arrays one after the other, each row by row; ``chosen`` names the layers that count.

    A layer is named as its parameters are, whole (``1.weight``) or by the part before the last dot
    (``1``, weight and bias). ``logarithmic`` reads probabilities as their logarithms, less each
    row's mean: scores up to the constant that softmax loses.
    """

    blocks: tuple[tuple[str, tuple[int, ...]], ...]
    chosen: tuple[str, ...] | None = None
    logarithmic: bool = False

    @property
    def whole(self) -> int:
        """How many numbers a release has, chosen or not."""
        return sum(math.prod(shape) for _, shape in self.blocks)

    def mismatch(self, release: Release) -> str | None:
        """Say in what way a release isn't laid out like this, or return None."""
        found = {name: array.shape for name, array in _arrays(release).items()}
        for name, shape in self.blocks:
            if name not in found:
                return f"there is no parameter {name!r} (shape {shape}) among {list(found)}"
            if found[name] != shape:
                return f"{name!r} has shape {found[name]}, the network's has {shape}"
        extra = [name for name in found if name not in dict(self.blocks)]
        if extra:
            return f"the network has no parameter {extra[0]!r}"
        if self.chosen == ():
            return "no layer is chosen: name one, or leave layers out"
        for layer in self.chosen or ():
            if not any(_belongs(name, layer) for name, _ in self.blocks):
                names = ", ".join(name for name, _ in self.blocks)
                return f"there is no layer {layer!r}; there are {names}"
        return None

    def vector(self, release: Release) -> FloatArray:
        """Return every number of a release (whole,), float64, before layers are chosen."""
        return np.asarray(self.read(self.raw(release)[None])[0])

    def raw(self, release: Release) -> FloatArray:
        """Return the numbers of a release as they were published (whole,), float64."""
        arrays = _arrays(release)
        parts = [np.asarray(arrays[name], dtype=np.float64).ravel() for name, _ in self.blocks]
        return np.concatenate(parts)

    def read(self, values: FloatArray) -> FloatArray:
        """Return numbers (k, whole) as they are compared: logarithms where they are asked for."""
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
    match release:
        case Weights(parameters):
            return dict(parameters)
        case Outputs():
            return {"values": release.values}
        case _:
            return {}
