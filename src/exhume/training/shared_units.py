"""Standardised models in the units of one shared scaler: many fits in one pass over the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from exhume.protocol.arrays import Array, FloatArray


@dataclass(frozen=True, eq=False)
class SharedUnits:
    """Scalers that differ little from a base: a row z in its units is ratio·z + shift in theirs.

    ``ratio`` and ``shift`` (k, features). Parameters (k, 1 + features, outputs) begin with the
    intercept, which takes up the shift. Only models with an intercept can share.
    """

    ratio: FloatArray
    shift: FloatArray

    @classmethod
    def of(cls, base: Mapping[str, Array], scalers: Sequence[Mapping[str, Array]]) -> SharedUnits:
        """Return how each of these scalers is seen from the base."""
        scales = np.stack([np.asarray(one["scaler.scale"], np.float64) for one in scalers])
        means = np.stack([np.asarray(one["scaler.mean"], np.float64) for one in scalers])
        return cls(base["scaler.scale"] / scales, (base["scaler.mean"] - means) / scales)

    def inward(self, thetas: FloatArray) -> FloatArray:
        """Return parameters as they act on rows in the base's units."""
        slopes = self.ratio[:, :, None] * thetas[:, 1:]
        moved = np.einsum("kd,kdo->ko", self.shift, thetas[:, 1:])
        return np.concatenate([(thetas[:, 0] + moved)[:, None], slopes], axis=1)

    def outward(self, thetas: FloatArray) -> FloatArray:
        """Return parameters in each scaler's own units: the inverse of ``inward``."""
        slopes = thetas[:, 1:] / self.ratio[:, :, None]
        moved = np.einsum("kd,kdo->ko", self.shift, slopes)
        return np.concatenate([(thetas[:, 0] - moved)[:, None], slopes], axis=1)

    def gradients(self, gradients: FloatArray) -> FloatArray:
        """Return the gradients of a loss in each scaler's own units, from those in the base's."""
        first = gradients[:, :1]
        slopes = self.ratio[:, :, None] * gradients[:, 1:] + self.shift[:, :, None] * first
        return np.concatenate([first, slopes], axis=1)


def scalers_with(base: Mapping[str, Array], rows: Array, targets: Array) -> list[dict[str, Array]]:
    """Return the scaler of ``rows`` (n, features) with each target added, from the base's moments.

    >>> rows = np.array([[0.0], [2.0]])
    >>> base = {"scaler.mean": np.array([1.0]), "scaler.scale": np.array([1.0])}
    >>> (found,) = scalers_with(base, rows, np.array([[4.0]]))
    >>> float(found["scaler.mean"][0]), round(float(found["scaler.scale"][0]) ** 2, 12)
    (2.0, 2.666666666667)
    """
    count, largest = len(rows), np.abs(rows).max(axis=0)
    apart = targets - base["scaler.mean"]
    spread = rows.var(axis=0)
    scalers: list[dict[str, Array]] = []
    for target, far in zip(targets, apart, strict=True):
        variance = count / (count + 1) * (spread + far**2 / (count + 1))
        scale = np.sqrt(variance)
        least = 10 * np.finfo(np.float64).eps * np.maximum(largest, np.abs(target))
        scalers.append(
            {
                "scaler.mean": base["scaler.mean"] + far / (count + 1),
                "scaler.scale": np.where(scale <= least, 1.0, scale),
                "scaler.count": np.asarray(count + 1),
            }
        )
    return scalers
