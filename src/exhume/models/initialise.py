"""Initial parameters: the usual random schemes, with their own seed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from exhume.models.base import Network
from exhume.protocol.arrays import Array, FloatArray, frozen_mapping
from exhume.protocol.seeds import stream


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
    """``seed`` None: drawn from the training's own stream, so the adversary does not know it."""

    scheme: Scheme = Scheme.LECUN
    seed: int | None = 0

    @property
    def known(self) -> bool:
        """Whether anyone who knows the training knows the initial parameters."""
        return self.seed is not None

    def draw(self, network: Network, rng: np.random.Generator) -> dict[str, FloatArray]:
        """Return initial parameters by name; ``rng`` is used only without a seed."""
        if self.seed is not None:
            rng = stream(self.seed, "initialisation")
        shapes = network.parameter_shapes()
        return {name: _drawn(name, shape, self.scheme, rng) for name, shape in shapes.items()}


@dataclass(frozen=True, eq=False)
class GivenInitialisation(Initialisation):
    """Initial parameters by name; there is nothing to draw."""

    parameters: Mapping[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", frozen_mapping(self.parameters))

    def draw(self, network: Network, rng: np.random.Generator) -> dict[str, FloatArray]:
        """Return the parameters, in the network's own order."""
        return {n: np.asarray(self.parameters[n], float) for n in network.parameter_shapes()}


def _drawn(
    name: str, shape: tuple[int, ...], scheme: Scheme, rng: np.random.Generator
) -> FloatArray:
    if len(shape) < 2:
        # A one-dimensional "weight" is the gain of a normalisation layer.
        return np.ones(shape) if name.endswith("weight") else np.zeros(shape)
    area = math.prod(shape[2:])
    fan_in, fan_out = shape[1] * area, shape[0] * area
    if scheme is Scheme.GLOROT:
        limit = math.sqrt(6.0 / (fan_in + fan_out))
        return rng.uniform(-limit, limit, size=shape)
    variance = (2.0 if scheme is Scheme.HE else 1.0) / fan_in
    return math.sqrt(variance) * rng.standard_normal(shape)
