"""Fisher's linear discriminant between two samples, for any number of dimensions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exhume.arrays import FloatArray
from exhume.metrics.shrinkage import shrunk_covariance

_NO_SPREAD = 1e-10
"""Deviations below this part of the gap are rounding, not noise."""


@dataclass(frozen=True, eq=False)
class Discriminant:
    """Two Gaussians with one covariance: ``weights`` (d,) = Σ⁻¹(μ₁ − μ₀), ``middle`` (d,)."""

    weights: FloatArray
    middle: FloatArray
    gap: float
    """(μ₁ − μ₀)ᵀ Σ⁻¹ (μ₁ − μ₀), the squared Mahalanobis distance of the means."""

    def ratio(self, rows: FloatArray) -> FloatArray:
        """Return log p₁/p₀ of rows (k, d)."""
        return np.asarray((rows - self.middle) @ self.weights)

    def position(self, rows: FloatArray) -> FloatArray:
        """Return where rows lie on the line between the means: +½ at μ₁, −½ at μ₀."""
        return self.ratio(rows) / self.gap if self.gap > 0.0 else np.zeros(len(rows))


def discriminant(one: FloatArray, other: FloatArray) -> Discriminant:
    """Fit the discriminant to two samples (k, d) and (m, d), the covariance shrunk.

    Samples that don't vary are told apart by the nearer mean.

    >>> found = discriminant(np.array([[1.0], [3.0]]), np.array([[-1.0], [-3.0]]))
    >>> found.ratio(np.array([[2.0], [0.0]])).round(3).tolist()
    [8.0, 0.0]
    """
    first, second = one.mean(axis=0), other.mean(axis=0)
    apart, middle = first - second, 0.5 * (first + second)
    deviations = np.concatenate([one - first, other - second])
    length = float(np.linalg.norm(apart))
    floor = _NO_SPREAD * length / np.sqrt(apart.size)
    if length == 0.0 or float(np.sqrt(np.mean(deviations**2))) <= floor:
        weights = apart / floor**2 if length > 0.0 else apart
    else:
        weights = shrunk_covariance(deviations).solve(apart)
    return Discriminant(weights, middle, float(apart @ weights))
