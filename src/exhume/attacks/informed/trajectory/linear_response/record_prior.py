"""What a record looks like before the release: a Gaussian fitted to the known ones."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from exhume.protocol.knowledge import KnownAttributes
from exhume.protocol.records import Records
from exhume.stats.covariance import shrunk_covariance


@dataclass(frozen=True, eq=False)
class RecordPrior:
    """Records are ``mean`` + root·c with c (D,) standard normal; known entries stay as they are.

    The root is ``rest`` on what ``directions`` (D, k) do not span, and ``deviations`` (k,) there.
    """

    mean: Tensor
    directions: Tensor
    deviations: Tensor
    rest: float

    @property
    def spread(self) -> float:
        """Return the root-mean-square deviation of an entry."""
        size, spanned = self.directions.shape
        total = float(self.deviations.square().sum()) + (size - spanned) * self.rest**2
        return math.sqrt(total / size)

    def record(self, coordinates: Tensor) -> Tensor:
        """Return the record (D,) at coordinates c (D,)."""
        return self.mean + self._scaled(coordinates, self.deviations, self.rest, out=True)

    def coordinates(self, record: Tensor) -> Tensor:
        """Return c (D,) of a record (D,)."""
        return self._scaled(record - self.mean, 1.0 / self.deviations, 1.0 / self.rest, out=False)

    def _scaled(self, vector: Tensor, inside: Tensor, outside: float, *, out: bool) -> Tensor:
        basis = self.directions
        if basis.shape[0] == basis.shape[1]:
            # Here the directions are coordinates: one product with the basis is enough.
            return basis @ (inside * vector) if out else inside * (basis.T @ vector)
        return outside * vector + basis @ ((inside - outside) * (basis.T @ vector))


def fitted_prior(fixed_set: Records, dtype: torch.dtype) -> RecordPrior:
    """Return the prior of records like these: their mean, their covariance after Ledoit–Wolf."""
    rows = np.asarray(fixed_set.x, dtype=np.float64).reshape(len(fixed_set), -1)
    mean = rows.mean(axis=0)
    shrunk = shrunk_covariance(rows - mean)
    values, directions = _spectrum(shrunk.deviations)
    deviations = np.sqrt(shrunk.weight * values + shrunk.ridge)
    return RecordPrior(
        torch.as_tensor(mean, dtype=dtype),
        torch.as_tensor(directions, dtype=dtype).contiguous(),
        torch.as_tensor(deviations, dtype=dtype),
        float(np.sqrt(shrunk.ridge)),
    )


def _spectrum(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the eigenvalues (k,) and directions (d, k) of RᵀR that rows R (n, d) span."""
    if rows.shape[0] >= rows.shape[1]:
        values, directions = np.linalg.eigh(rows.T @ rows)
        return np.maximum(values, 0.0), directions
    values, left = np.linalg.eigh(rows @ rows.T)
    kept = values > 1e-10 * max(float(values[-1]), 1e-300)
    return values[kept], (rows.T @ left[:, kept]) / np.sqrt(values[kept])


@dataclass(frozen=True, eq=False)
class KnownEntries:
    """The entries of the target that are known: they replace those of any candidate."""

    mask: Tensor
    values: Tensor

    def filled(self, record: Tensor) -> Tensor:
        """Return the record (D,) with these entries in it."""
        return torch.where(self.mask, self.values, record)


def known_entries(known: KnownAttributes | None, like: Tensor) -> KnownEntries:
    """Return what is known of the target; nothing without attributes."""
    if known is None:
        return KnownEntries(torch.zeros_like(like, dtype=torch.bool), torch.zeros_like(like))
    mask = torch.as_tensor(np.array(known.mask).ravel())
    return KnownEntries(mask, torch.as_tensor(np.array(known.values).ravel(), dtype=like.dtype))
