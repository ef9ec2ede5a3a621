"""Kernel ridge regression in closed form, with all leave-one-out errors at no extra cost.

The kernels compare differences of norm one: norms span two orders of magnitude and say little.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from exhume.protocol.arrays import Array, FloatArray

_OFFSET = 0.3
"""Weight of the linear part in the product kernels; flat between .1 and 1 on MNIST."""


class Kernel(Enum):
    """The similarity of two releases, from the cosines of their differences to the base."""

    LINEAR = "linear"
    """⟨u, v⟩: plain ridge regression."""
    SQUARE = "square"
    """(0.3 + ⟨u, v⟩)²: pairs of parameters."""
    PRODUCT = "first layer × rest"
    """⟨u₁, v₁⟩(0.3 + ⟨u₂, v₂⟩): the first layer contains the record, the rest its factor.

    In a step of gradient descent the first layer moves by (signal of the hidden units) × record,
    and the later layers by that signal. Linear regression can't form their product.
    """

    def of(self, whole: FloatArray, first: FloatArray, rest: FloatArray) -> FloatArray:
        """Return kernel values from the cosines of all numbers, the first block, and the rest."""
        match self:
            case Kernel.LINEAR:
                return whole
            case Kernel.SQUARE:
                return np.asarray(np.square(_OFFSET + whole))
            case Kernel.PRODUCT:
                return np.asarray(first * (_OFFSET + rest))


@dataclass(frozen=True, eq=False)
class Directions:
    """The differences of k shadow models (k, P), prepared for comparing their directions."""

    differences: Array
    split: int
    norms: FloatArray
    first_norms: FloatArray
    rest_norms: FloatArray

    def cosines(self, vector: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the cosines (k,) of one difference: all numbers, the first block, the rest."""
        vector = scaled(vector)
        first = self.differences[:, : self.split] @ vector[: self.split].astype(np.float32)
        rest = self.differences[:, self.split :] @ vector[self.split :].astype(np.float32)
        dots = [np.asarray(part, dtype=np.float64) for part in (first + rest, first, rest)]
        parts = (vector, vector[: self.split], vector[self.split :])
        norms = (self.norms, self.first_norms, self.rest_norms)
        found = [
            over(dot, norm * np.linalg.norm(part))
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
        found = [over(g, n[:, None] * n[None]) for g, n in zip(grams, norms, strict=True)]
        return found[0], found[1], found[2]


def directions(differences: Array, split: int) -> Directions:
    """Return differences (k, P) with their norms: whole, first ``split`` numbers, rest."""
    # Norms around 1, so that squares neither underflow nor overflow in single precision.
    size = float(np.abs(differences).max()) or 1.0
    rows = (differences / np.float32(size)).astype(np.float32)
    first = np.sqrt(np.square(rows[:, :split], dtype=np.float64).sum(axis=1))
    rest = np.sqrt(np.square(rows[:, split:], dtype=np.float64).sum(axis=1))
    return Directions(rows, split, np.hypot(first, rest), first, rest)


def scaled(vector: FloatArray) -> FloatArray:
    """Return a vector of any finite size scaled to a largest entry of 1; zeros stay zeros."""
    size = float(np.abs(vector).max(initial=0.0))
    return vector / size if size > 0 else vector


def over(dots: FloatArray, norms: FloatArray) -> FloatArray:
    """Return products over norms; 0 where there is no direction."""
    return np.divide(dots, norms, out=np.zeros_like(dots), where=norms > 0)


PENALTIES = np.logspace(-5, 3, 33)
"""Candidate penalties, in units of the kernel's mean eigenvalue; kernels are exact to 1e-6."""


@dataclass(frozen=True, eq=False)
class KernelRidge:
    """Predicts mean + Σᵢ aᵢ k(·, i) from a centred kernel over k examples.

    ``left_out`` (k, d) are the leave-one-out predictions of the examples. ``spread`` (k,) is the
    posterior variance there, in units of the kernel.
    """

    coefficients: FloatArray
    mean: FloatArray
    column_means: FloatArray
    vectors: FloatArray
    inverse: FloatArray
    penalty: float
    left_out: FloatArray
    spread: FloatArray

    def predict(self, row: FloatArray) -> FloatArray:
        """Return the prediction (d,) at a point with kernel values ``row`` (k,)."""
        return np.asarray(self.mean + self._centred(row) @ self.coefficients)

    def spread_at(self, row: FloatArray, own: float) -> float:
        """Return the posterior variance at a point; ``own`` is its kernel with itself."""
        centred = self._centred(row)
        whole = own - 2.0 * float(row.mean()) + float(self.column_means.mean())
        explained = float(np.square(centred @ self.vectors) @ self.inverse)
        return max(whole - explained, 0.0)

    def _centred(self, row: FloatArray) -> FloatArray:
        return np.asarray(
            row - self.column_means - float(row.mean()) + float(self.column_means.mean())
        )


def fit(kernel: FloatArray, responses: FloatArray, *, judged: int) -> KernelRidge:
    """Fit ``responses`` (k, d) on a kernel (k, k) over the examples.

    The penalty minimises the generalised cross-validation error (Golub, Heath, Wahba 1979) of the
    first ``judged`` columns. One eigendecomposition of the centred kernel gives everything,
    including the leave-one-out predictions y − residual / (1 − leverage).
    """
    count = len(kernel)
    means = kernel.mean(axis=0)
    centred = kernel - means[None] - means[:, None] + means.mean()
    # The constant belongs to the mean, which is not penalised: it becomes the largest direction.
    apart = 2.0 * float(np.trace(centred)) + 1.0
    values, vectors = np.linalg.eigh(centred + apart / count)
    values = np.append(np.maximum(values[:-1], 0.0), 0.0)
    free = np.append(np.ones(count - 1), 0.0)
    mean = responses.mean(axis=0)
    rotated = vectors.T @ (responses - mean)
    penalty = _penalty(values, free, np.square(rotated[:, :judged]).sum(axis=1))
    inverse = free / (values + penalty)
    coefficients = vectors @ (rotated * inverse[:, None])
    complement = np.maximum(np.square(vectors) @ inverse, 1e-300)[:, None]
    return KernelRidge(
        coefficients,
        mean,
        means,
        vectors,
        inverse,
        penalty,
        responses - coefficients / complement,
        np.maximum(1.0 / complement[:, 0] - penalty, 0.0),
    )


def _penalty(values: FloatArray, free: FloatArray, power: FloatArray) -> float:
    scale = float(values.mean()) or 1.0
    scores = []
    for penalty in scale * PENALTIES:
        kept = free * penalty / (values + penalty)
        scores.append(float(power @ kept**2) / max(float(kept.sum()), 1e-300) ** 2)
    return float(scale * PENALTIES[int(np.argmin(scores))])
