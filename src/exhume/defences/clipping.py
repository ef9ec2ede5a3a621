"""Clipping a whole gradient."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.defence import Transform, whole_norm
from exhume.protocol.limits import Positive
from exhume.protocol.mechanism import Mechanism

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class Clipping(Transform):
    """Scales the whole gradient down to ``norm`` if it is longer."""

    inner: Mechanism
    norm: Positive
    name: ClassVar[str] = "clipping"
    shows_zeros: ClassVar[bool] = True

    def changed(self, arrays: Mapping[str, Array], rng: np.random.Generator) -> dict[str, Array]:
        """Return the arrays, scaled."""
        factor = min(1.0, self.norm / max(whole_norm(arrays), 1e-300))
        return {name: a * a.dtype.type(factor) for name, a in arrays.items()}

    def simulated(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the values, scaled by their own norm."""
        import torch

        square = torch.stack([v.square().sum() for v in values]).sum()
        factor = (self.norm / square.clamp_min(1e-30).sqrt()).clamp_max(1.0)
        return [v * factor for v in values]

    def sensitivity(self, records: int) -> float:
        """Return the ball's diameter: the norm is at most ``norm`` with or without the record."""
        inner = self.inner.sensitivity(records)
        return 2.0 * self.norm if inner is None else min(inner, 2.0 * self.norm)

    def deviations(self, arrays: Mapping[str, FloatArray], records: int) -> dict[str, float]:
        """Return the inner deviations, limited by the norm of what was sent."""
        # The noise was scaled down with the rest, so it is not longer than what was sent.
        entries = sum(a.size for a in arrays.values())
        inner = super().deviations(arrays, records)
        return {n: min(s, self.norm / math.sqrt(entries)) for n, s in inner.items()}

    def describe(self) -> str:
        """Return a short description."""
        return f"the whole gradient clipped to {self.norm:g}"
