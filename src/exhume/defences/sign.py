"""Sending signs only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.defence import Transform
from exhume.protocol.mechanism import Mechanism

if TYPE_CHECKING:
    import torch

_SOFTNESS = 0.5
"""The width of the adversary's soft sign, in units of a parameter's mean size."""


@dataclass(frozen=True, eq=False)
class Sign(Transform):
    """Sends signs only, times the mean absolute value of each parameter's entries."""

    inner: Mechanism
    name: ClassVar[str] = "sign"
    shows_zeros: ClassVar[bool] = True
    smoothed: ClassVar[bool] = True

    def changed(self, arrays: Mapping[str, Array], rng: np.random.Generator) -> dict[str, Array]:
        """Return signs, with one size per parameter."""
        return {n: (np.sign(a) * np.abs(a).mean()).astype(a.dtype) for n, a in arrays.items()}

    def simulated(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return soft signs, which have a gradient."""
        sizes = [v.abs().mean().clamp_min(1e-30) for v in values]
        return [s * (v / (_SOFTNESS * s)).tanh() for v, s in zip(values, sizes, strict=True)]

    def deviations(self, arrays: Mapping[str, FloatArray], records: int) -> dict[str, float]:
        """Return 0: noise that does not change a sign is not sent."""
        return dict.fromkeys(arrays, 0.0)

    def describe(self) -> str:
        """Return a short description."""
        return "signs only"
