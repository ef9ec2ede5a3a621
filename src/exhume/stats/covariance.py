"""A covariance that can be inverted, from fewer records than entries.

Fisher's linear discriminant between two samples, for any number of dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exhume.protocol.arrays import FloatArray
from exhume.protocol.errors import InputError


@dataclass(frozen=True, eq=False)
class Shrunk:
    """The covariance ``share``·RᵀR/n + ``ridge``·I, kept as the n deviations R (n, d) themselves.

    Nothing here builds a d × d matrix where d exceeds n.
    """

    deviations: FloatArray
    share: float
    ridge: float

    @property
    def weight(self) -> float:
        """The weight of one record's own outer product."""
        return self.share / len(self.deviations)

    def solve(self, right: FloatArray) -> FloatArray:
        """Return the inverse covariance times ``right`` (d,) or (d, k), by Woodbury's identity."""
        rows, n = self.deviations, len(self.deviations)
        if rows.shape[1] <= n:
            whole = self.weight * (rows.T @ rows) + self.ridge * np.eye(rows.shape[1])
            return np.asarray(np.linalg.solve(whole, right))
        inner = self.weight * (rows @ rows.T) + self.ridge * np.eye(n)
        inside = np.linalg.solve(inner, self.weight * (rows @ right))
        return np.asarray((right - rows.T @ inside) / self.ridge)


def shrunk_covariance(deviations: FloatArray) -> Shrunk:
    """Mix the covariance of centred records (n, d) with a multiple of the identity.

    The mixing share is that of Ledoit and Wolf 2004, computed from the n × n or d × d products,
    whichever are fewer. Records that do not vary get the identity.

    >>> rng = np.random.default_rng(0)
    >>> shrunk = shrunk_covariance(rng.normal(size=(20, 100)))
    >>> round(1 - shrunk.share, 3), shrunk.solve(np.ones(100)).shape
    (0.953, (100,))
    """
    deviations = np.asarray(deviations, dtype=np.float64)
    if deviations.ndim != 2 or 0 in deviations.shape:
        raise InputError(f"deviations need shape (n, d), none empty, got {deviations.shape}")
    n, d = deviations.shape
    lengths = np.einsum("nd,nd->n", deviations, deviations)
    mean = float(lengths.sum()) / (n * d)
    if mean <= 0.0:
        return Shrunk(deviations, 0.0, 1.0)
    product = deviations @ deviations.T if n <= d else deviations.T @ deviations
    squared = float(np.einsum("ij,ij->", product, product)) / n**2
    spread = squared - d * mean**2
    noise = (float(lengths @ lengths) / n - squared) / n
    share = 1.0 if spread <= 0.0 else min(1.0, max(noise, 0.0) / spread)
    # A share of 0 would leave a covariance that a constant column makes singular.
    share = max(share, 1e-8)
    return Shrunk(deviations, 1.0 - share, share * mean)


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

    Samples that do not vary are separated by the nearer mean.

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
