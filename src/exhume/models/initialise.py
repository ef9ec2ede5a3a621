"""Where training starts: the usual random schemes, from a seed of their own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

import numpy as np

from exhume.arrays import FloatArray
from exhume.models.base import Network
from exhume.seeds import stream


class Scheme(Enum):
    """The variance of a weight, from the sizes of its layer. Biases start at 0."""

    LECUN = "lecun"
    """Normal, variance 1 / fan-in."""
    GLOROT = "glorot"
    """Uniform, variance 2 / (fan-in + fan-out)."""
    HE = "he"
    """Normal, variance 2 / fan-in."""


@dataclass(frozen=True)
class Initialisation:
    """``seed`` None: drawn anew from the training's own stream, so the adversary has it not."""

    scheme: Scheme = Scheme.LECUN
    seed: int | None = 0

    @property
    def known(self) -> bool:
        """Whether everybody who knows the training knows where it started."""
        return self.seed is not None

    def draw(self, network: Network, rng: np.random.Generator) -> dict[str, FloatArray]:
        """Return initial parameters by name; ``rng`` is used only where there is no seed."""
        if self.seed is not None:
            rng = stream(self.seed, "initialisation")
        shapes = network.parameter_shapes()
        return {name: _drawn(name, shape, self.scheme, rng) for name, shape in shapes.items()}


def _drawn(
    name: str, shape: tuple[int, ...], scheme: Scheme, rng: np.random.Generator
) -> FloatArray:
    if len(shape) < 2:
        # A one-dimensional "weight" is the gain of a normalisation layer.
        return np.ones(shape) if name.endswith("weight") else np.zeros(shape)
    field = math.prod(shape[2:])
    fan_in, fan_out = shape[1] * field, shape[0] * field
    if scheme is Scheme.GLOROT:
        limit = math.sqrt(6.0 / (fan_in + fan_out))
        return rng.uniform(-limit, limit, size=shape)
    variance = (2.0 if scheme is Scheme.HE else 1.0) / fan_in
    return math.sqrt(variance) * rng.standard_normal(shape)
