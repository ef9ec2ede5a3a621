"""A start of training that the adversary was told, rather than can draw again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from exhume.arrays import Array, FloatArray, frozen_mapping
from exhume.models.base import Network
from exhume.models.initialise import Initialisation
from exhume.training.network import Training


@dataclass(frozen=True, eq=False)
class GivenInitialisation(Initialisation):
    """Initial parameters by name; there is nothing to draw."""

    parameters: Mapping[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", frozen_mapping(self.parameters))

    def draw(self, network: Network, rng: np.random.Generator) -> dict[str, FloatArray]:
        """Return the parameters, in the network's own order."""
        return {n: np.asarray(self.parameters[n], float) for n in network.parameter_shapes()}


def started(training: Training, initial: Mapping[str, Array] | None) -> Training:
    """Return the training as it starts for somebody who knows ``initial``, if they do."""
    if initial is None or training.initial.known:
        return training
    return replace(training, initial=GivenInitialisation(parameters=initial))
