"""Kernel ridge regression in closed form, with every leave-one-out error for free."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exhume.arrays import FloatArray

PENALTIES = np.logspace(-5, 3, 33)
"""Tried penalties, in units of the kernel's mean eigenvalue; kernels are good to about 1e-6."""


@dataclass(frozen=True, eq=False)
class KernelRidge:
    """Predicts mean + Σᵢ aᵢ k(·, i) from a centred kernel over k examples.

    ``left_out`` (k, d) holds what each example is predicted as by all the others; ``spread`` (k,)
    the posterior variance there, in units of the kernel.
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
    first ``judged`` columns; everything comes from one eigendecomposition of the centred kernel,
    as do the leave-one-out predictions y − (residual / its leverage's complement).
    """
    count = len(kernel)
    means = kernel.mean(axis=0)
    centred = kernel - means[None] - means[:, None] + means.mean()
    # The constant belongs to the mean, which is not penalised: set apart as the largest direction.
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
