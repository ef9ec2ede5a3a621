"""A Gaussian prior on the record: it turns the least-squares fit into a MAP estimate."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import Tensor

from exhume.attacks.informed.trajectory.observation import Observation
from exhume.attacks.informed.trajectory.one_target.unrolled import Path, Unrolled
from exhume.protocol.arrays import FloatArray


class TrajectoryPrior(ABC):
    """A Gaussian prior on the record's entries (D,): a mean, and a root L of the covariance LLᵀ.

    The mean can be a learned reconstructor's answer, with the covariance of its errors.
    """

    mean: Tensor

    @abstractmethod
    def root(self, vector: Tensor) -> Tensor:
        """Return L·vector, (D,); L is symmetric."""

    @abstractmethod
    def inverse_root(self, vector: Tensor) -> Tensor:
        """Return L⁻¹·vector, (D,)."""

    @abstractmethod
    def variance(self) -> float:
        """Return the mean variance of an entry: the squared error of guessing the mean."""


class GaussianPrior(TrajectoryPrior):
    """Covariance Σ λᵢ vᵢvᵢᵀ, ``floor``² elsewhere: orthonormal ``directions`` (D, k), λ (k,)."""

    def __init__(self, mean: Tensor, directions: Tensor, variances: Tensor, floor: float) -> None:
        self.mean, self.directions, self.floor = mean, directions, floor
        self.deviations = variances.clamp_min(floor**2).sqrt()

    def root(self, vector: Tensor) -> Tensor:
        """Return L·vector."""
        return self._scaled(vector, self.deviations, self.floor)

    def inverse_root(self, vector: Tensor) -> Tensor:
        """Return L⁻¹·vector."""
        return self._scaled(vector, 1.0 / self.deviations, 1.0 / self.floor)

    def variance(self) -> float:
        """Return the mean variance of an entry."""
        rest = len(self.mean) - len(self.deviations)
        return float((self.deviations.square().sum() + rest * self.floor**2) / len(self.mean))

    def _scaled(self, vector: Tensor, inside: Tensor, outside: float) -> Tensor:
        basis = self.directions.to(vector.dtype)
        parts = basis.T @ vector
        return outside * vector + basis @ ((inside.to(vector.dtype) - outside) * parts)


def pool_prior(pool: FloatArray, *, shrinkage: float = 0.1) -> GaussianPrior:
    """Return the prior of a pool (n, D) of records: its mean, its shrunk covariance.

    ``shrinkage`` shrinks it towards a multiple of the identity. So a direction that few records
    vary in is not ruled out.
    """
    mean = pool.mean(axis=0)
    centred = pool - mean
    _, values, basis = np.linalg.svd(centred, full_matrices=False)
    variances = values**2 / max(1, len(pool) - 1)
    average = float(variances.sum() / pool.shape[1])
    kept = variances > 1e-12 * max(average, 1e-300)
    floor = max(shrinkage * average, 1e-12)
    shrunk = (1.0 - shrinkage) * variances[kept] + floor
    return GaussianPrior(
        torch.as_tensor(mean),
        torch.as_tensor(basis[kept].T.copy()),
        torch.as_tensor(shrunk),
        float(np.sqrt(floor)),
    )


class SeenThroughPrior(Unrolled):
    """(w, label) → (observed / noise, w), where the record is mean + L·w.

    Fitting this to (release / noise, 0) by least squares is the maximum a posteriori record under
    Gaussian noise of deviation ``noise`` (m,).
    """

    def __init__(self, inner: Unrolled, prior: TrajectoryPrior, noise: Tensor) -> None:
        super().__init__(_Nothing(), inner.unknowns, inner.initial)
        self.inner, self.prior, self.noise = inner, prior, noise.to(inner.initial.dtype)
        self.entries = len(prior.mean)
        self.count = inner.count

    def record(self, whitened: Tensor) -> Tensor:
        """Return the record that (w, label) represents."""
        entries, label = whitened[: self.entries], whitened[self.entries :]
        return torch.cat([self.prior.mean.to(entries) + self.prior.root(entries), label])

    def whitened(self, record: Tensor) -> Tensor:
        """Return (w, label) of a record."""
        entries, label = record[: self.entries], record[self.entries :]
        return torch.cat([self.prior.inverse_root(entries - self.prior.mean.to(entries)), label])

    def path(self, record: Tensor) -> Path:
        """Train with the record that (w, label) represents."""
        return _PathThroughPrior(self, record)

    def observed(self, record: Tensor) -> Tensor:
        """Return the observed numbers over their noise, and w."""
        seen = self.inner.observed(self.record(record)) / self.noise
        return torch.cat([seen, record[: self.entries]])

    def _trained(self, record: Tensor) -> Tensor:
        return self.inner._trained(self.record(record))

    def _weightless(self, record: Tensor) -> Tensor:
        return self.inner.base


class _Nothing(Observation):
    """A placeholder: the inner training has its own observation."""

    def value(self, theta: Tensor) -> Tensor:
        return theta

    def jvp(self, theta: Tensor, tangent: Tensor) -> Tensor:
        return tangent

    def vjp(self, theta: Tensor, cotangent: Tensor) -> Tensor:
        return cotangent


class _PathThroughPrior(Path):
    def __init__(self, unrolled: SeenThroughPrior, record: Tensor) -> None:
        self.unrolled, self.record, self._through = unrolled, record, unrolled
        self.inner = unrolled.inner.path(unrolled.record(record))
        self.theta = self.inner.theta

    def jvp(self, record: Tensor) -> Tensor:
        entries, label = record[: self._through.entries], record[self._through.entries :]
        moved = self.inner.jvp(torch.cat([self._through.prior.root(entries), label]))
        return torch.cat([moved / self._through.noise, entries])

    def vjp(self, cotangent: Tensor) -> Tensor:
        split = len(cotangent) - self._through.entries
        pulled = self.inner.vjp(cotangent[:split] / self._through.noise)
        entries, label = pulled[: self._through.entries], pulled[self._through.entries :]
        return torch.cat([self._through.prior.root(entries) + cotangent[split:], label])

    def push(self, initial: Tensor, record: Tensor) -> Tensor:
        return self.inner.push(initial, self._through.record(record))

    def pull(self, cotangent: Tensor) -> tuple[Tensor, Tensor]:
        return self.inner.pull(cotangent)
