"""Dropout of a gradient's entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.defence import ReleaseOf, SimulatedInner, Transform
from exhume.protocol.limits import Share
from exhume.protocol.mechanism import Mechanism

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class GradientDropout(Transform):
    """Sets entries to 0 at random, each with probability ``rate``; the others are scaled up."""

    inner: Mechanism
    rate: Share
    name: ClassVar[str] = "gradient-dropout"
    shows_zeros: ClassVar[bool] = True

    def changed(self, arrays: Mapping[str, Array], rng: np.random.Generator) -> dict[str, Array]:
        """Return the arrays with dropped entries; their mean is right."""
        factor = 1.0 / (1.0 - self.rate)
        return {
            name: np.where(rng.random(a.shape) >= self.rate, a * a.dtype.type(factor), 0).astype(
                a.dtype
            )
            for name, a in arrays.items()
        }

    def simulated(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the values unchanged where they are sent."""
        return [v / (1.0 - self.rate) for v in values]

    def simulated_release(self, inner: SimulatedInner) -> ReleaseOf:
        """Return the inner release scaled up, with the zeros that are visible in what was sent."""
        sent = inner.sent
        if sent is None:
            # Random zeros that are not visible are right on average, because of the scaling.
            return inner.release

        def release(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
            pairs = zip(self.simulated(inner.release(x, y)), sent, strict=True)
            return tuple(v if mask is None else v * mask for v, mask in pairs)

        return release

    @property
    def sending_chance(self) -> float:
        """The probability that an entry is not dropped."""
        return 1.0 - self.rate

    @property
    def sent_factor(self) -> float:
        """The factor that compensates for dropped entries."""
        return 1.0 / (1.0 - self.rate)

    def deviations(self, arrays: Mapping[str, FloatArray], records: int) -> dict[str, float]:
        """Return the inner deviations, scaled up like the entries."""
        return {n: s / (1.0 - self.rate) for n, s in super().deviations(arrays, records).items()}

    def sensitivity(self, records: int) -> float | None:
        """Return the inner one, scaled up: which entries are sent does not depend on the data."""
        inner = self.inner.sensitivity(records)
        return None if inner is None else inner / (1.0 - self.rate)

    def describe(self) -> str:
        """Return a short description."""
        return f"{self.rate:.4g} of the entries dropped at random"
