"""Sending a gradient in few bits: signs, or multiples of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exhume.arrays import Array
from exhume.defences.base import Transform
from exhume.errors import InputError
from exhume.mechanism import Mechanism

if TYPE_CHECKING:
    import torch

_SOFTNESS = 0.5
"""How sharp the adversary's stand-in for a sign is, in units of a parameter's mean size."""


@dataclass(frozen=True, eq=False)
class Sign(Transform):
    """Sends signs only, times the mean absolute value of each parameter's entries."""

    inner: Mechanism
    name: ClassVar[str] = "sign"

    def changed(self, arrays: Mapping[str, Array], rng: np.random.Generator) -> dict[str, Array]:
        """Return signs, one size a parameter."""
        return {n: (np.sign(a) * np.abs(a).mean()).astype(a.dtype) for n, a in arrays.items()}

    def simulated(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return soft signs, so that there is a slope to follow."""
        sizes = [v.abs().mean().clamp_min(1e-30) for v in values]
        return [s * (v / (_SOFTNESS * s)).tanh() for v, s in zip(values, sizes, strict=True)]

    def describe(self) -> str:
        """Say what is done."""
        return "signs only"


@dataclass(frozen=True, eq=False)
class Quantised(Transform):
    """Sends multiples of a step, 2^``bits`` levels from −max to max of each parameter.

    ``stochastic`` rounds up or down at random so that the mean is right (Alistarh et al. 2017).
    """

    inner: Mechanism
    bits: int
    stochastic: bool = False
    name: ClassVar[str] = "quantised"

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 16:
            raise InputError(f"bits must be from 1 to 16, got {self.bits}")

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

    def describe(self) -> str:
        """Say what is done."""
        how = "at random" if self.stochastic else "to the nearest"
        return f"{self.bits} bits a number, rounded {how}"
