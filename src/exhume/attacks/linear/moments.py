"""Sums of the known records: less these, a scaler's mean is its last record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.records import Records


@dataclass(frozen=True, eq=False)
class Leak:
    """A record computed from a scaler: features (d,), and the deviation of each entry."""

    x: FloatArray
    deviation: FloatArray


@dataclass(frozen=True, eq=False)
class KnownMoments:
    """Sums of the known records about their mean, shared by all releases with one more record."""

    count: int
    centre: FloatArray
    first: FloatArray
    second: FloatArray

    @classmethod
    def of(cls, others: Records) -> KnownMoments:
        """Return the moments of these records, in one pass."""
        rows = np.asarray(others.x, dtype=np.float64).reshape(len(others), -1)
        centre = rows.mean(axis=0)
        apart = rows - centre
        return cls(len(rows), centre, apart.sum(axis=0), np.einsum("nd,nd->d", apart, apart))

    @property
    def spread(self) -> float:
        """The mean deviation of a column."""
        return float(np.sqrt(self.second / self.count).mean())

    def leak(self, scaler: Mapping[str, Array], *, blur: float = 0.0) -> Leak:
        """Return the scaler's only record beside these; ``blur`` is the noise on its mean."""
        mean, count = np.asarray(scaler["scaler.mean"], np.float64), float(scaler["scaler.count"])
        far = mean - self.centre
        x = mean + self.count * far - self.first
        unit = np.finfo(np.result_type(scaler["scaler.mean"], np.float16)).eps
        # A computed mean has an error of about one unit in the last place; the sum multiplies it
        # by n.
        rounding = unit * np.abs(mean) * count
        squares = self.count * far**2 - 2.0 * far * self.first + self.second
        summing = np.finfo(np.float64).eps * np.sqrt(np.maximum(squares, 0.0))
        return Leak(x, np.sqrt(rounding**2 + summing**2 + (blur * count) ** 2))
