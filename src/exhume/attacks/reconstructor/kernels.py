"""Kernels on differences of length one: norms span two orders of magnitude and say little."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from exhume.arrays import Array, FloatArray

_OFFSET = 0.3
"""Weight of the linear part in the product kernels; flat between .1 and 1 on MNIST."""


class Kernel(Enum):
    """How alike two releases are, from the cosines of their differences to the base."""

    LINEAR = "linear"
    """⟨u, v⟩: ridge regression proper."""
    SQUARE = "square"
    """(0.3 + ⟨u, v⟩)²: pairs of parameters."""
    PRODUCT = "first layer × rest"
    """⟨u₁, v₁⟩(0.3 + ⟨u₂, v₂⟩): the first layer carries the record, the rest says how to read it.

    In a step of gradient descent the first layer moves by (signal of the hidden units) × record,
    and the later layers by that signal: their product is what linear regression can't form.
    """

    def of(self, whole: FloatArray, first: FloatArray, rest: FloatArray) -> FloatArray:
        """Return kernel values from cosines over all numbers, the first block, and the others."""
        match self:
            case Kernel.LINEAR:
                return whole
            case Kernel.SQUARE:
                return np.asarray(np.square(_OFFSET + whole))
            case Kernel.PRODUCT:
                return np.asarray(first * (_OFFSET + rest))


@dataclass(frozen=True, eq=False)
class Directions:
    """The differences of k shadow models (k, P), ready to be compared by their directions."""

    differences: Array
    split: int
    norms: FloatArray
    first_norms: FloatArray
    rest_norms: FloatArray

    def cosines(self, vector: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the cosines (k,) of one difference: all, the first block, the rest."""
        vector = scaled(vector)
        first = self.differences[:, : self.split] @ vector[: self.split].astype(np.float32)
        rest = self.differences[:, self.split :] @ vector[self.split :].astype(np.float32)
        dots = [np.asarray(part, dtype=np.float64) for part in (first + rest, first, rest)]
        parts = (vector, vector[: self.split], vector[self.split :])
        norms = (self.norms, self.first_norms, self.rest_norms)
        found = [
            _over(dot, norm * np.linalg.norm(part))
            for dot, norm, part in zip(dots, norms, parts, strict=True)
        ]
        return found[0], found[1], found[2]

    def table(self, count: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the cosines (count, count) among the first ``count`` shadow models."""
        rows = self.differences[:count]
        first = np.asarray(rows[:, : self.split] @ rows[:, : self.split].T, dtype=np.float64)
        rest = np.asarray(rows[:, self.split :] @ rows[:, self.split :].T, dtype=np.float64)
        norms = [n[:count] for n in (self.norms, self.first_norms, self.rest_norms)]
        grams = (first + rest, first, rest)
        found = [_over(g, n[:, None] * n[None]) for g, n in zip(grams, norms, strict=True)]
        return found[0], found[1], found[2]


def directions(differences: Array, split: int) -> Directions:
    """Return differences (k, P) with each one's norms: whole, first ``split`` numbers, rest."""
    # Lengths around 1, so that squares neither vanish nor overflow in single precision.
    size = float(np.abs(differences).max()) or 1.0
    rows = (differences / np.float32(size)).astype(np.float32)
    first = np.sqrt(np.square(rows[:, :split], dtype=np.float64).sum(axis=1))
    rest = np.sqrt(np.square(rows[:, split:], dtype=np.float64).sum(axis=1))
    return Directions(rows, split, np.hypot(first, rest), first, rest)


def scaled(vector: FloatArray) -> FloatArray:
    """Return a vector of any finite size with its largest entry 1; zeros stay zeros."""
    size = float(np.abs(vector).max(initial=0.0))
    return vector / size if size > 0 else vector


def _over(dots: FloatArray, norms: FloatArray) -> FloatArray:
    return np.divide(dots, norms, out=np.zeros_like(dots), where=norms > 0)
