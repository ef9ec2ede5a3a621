"""Sending a gradient in few bits per number."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.defence import Transform
from exhume.protocol.limits import from_to
from exhume.protocol.mechanism import Mechanism


@dataclass(frozen=True, eq=False)
class Quantised(Transform):
    """Sends multiples of a step, 2^``bits`` levels from −max to max of each parameter.

    ``stochastic`` rounds up or down at random with the right mean (Alistarh et al. 2017).
    """

    inner: Mechanism
    bits: Annotated[int, from_to(1, 16)]
    stochastic: bool = False
    name: ClassVar[str] = "quantised"

    def changed(self, arrays: Mapping[str, Array], rng: np.random.Generator) -> dict[str, Array]:
        """Return the arrays on their grids."""
        return {name: self._on_grid(a, rng) for name, a in arrays.items()}

    def _on_grid(self, values: Array, rng: np.random.Generator) -> Array:
        top = float(np.abs(values).max(initial=0.0))
        if top == 0.0:
            return values
        step = 2.0 * top / (2**self.bits - 1)
        place = (np.asarray(values, dtype=np.float64) + top) / step
        if self.stochastic:
            whole = np.floor(place + rng.random(place.shape))
        else:
            whole = np.floor(place + 0.5)
        found: Array = (whole.clip(0, 2**self.bits - 1) * step - top).astype(values.dtype)
        return found

    def deviations(self, arrays: Mapping[str, FloatArray], records: int) -> dict[str, float]:
        """Return the inner deviations combined with the rounding error on the grid."""
        # The largest entry is at the end of the grid.
        tops = {n: np.abs(a).max(initial=0.0) for n, a in arrays.items()}
        steps = {n: 2.0 * top / (2**self.bits - 1) for n, top in tops.items()}
        part = 1.0 / math.sqrt(6.0 if self.stochastic else 12.0)
        inner = super().deviations(arrays, records)
        return {n: math.hypot(s, float(part * steps[n])) for n, s in inner.items()}

    def describe(self) -> str:
        """Return a short description."""
        how = "at random" if self.stochastic else "to the nearest"
        return f"{self.bits} bits per number, rounded {how}"
