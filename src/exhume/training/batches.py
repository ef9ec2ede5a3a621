"""Which records a training step sees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from exhume.errors import InputError
from exhume.seeds import stream

Index = NDArray[np.int64]


@dataclass(frozen=True)
class Batches:
    """Mini-batches of ``size``, shuffled anew each epoch; the last of an epoch may be smaller.

    ``seed`` fixes the order for everybody who knows the training; None draws it from the training's
    own stream, so the adversary has it not. ``poisson``: each record joins each step by chance
    size / n instead, as the accounting of DP-SGD asks for.
    """

    size: int
    seed: int | None = 0
    poisson: bool = False

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InputError(f"a batch needs at least 1 record, got size {self.size}")

    @property
    def known(self) -> bool:
        """Whether everybody who knows the training knows the order."""
        return self.seed is not None

    def steps_an_epoch(self, count: int) -> int:
        """Return how many steps an epoch over ``count`` records has."""
        return -(-count // self.size)

    def steps(self, count: int, epochs: int, rng: np.random.Generator) -> Iterator[Index]:
        """Yield the records of each step; ``rng`` is used only where there is no seed."""
        if self.seed is not None:
            rng = stream(self.seed, "order")
        for _ in range(epochs):
            if self.poisson:
                for _ in range(self.steps_an_epoch(count)):
                    yield np.flatnonzero(rng.random(count) < self.size / count)
            else:
                order = rng.permutation(count)
                for start in range(0, count, self.size):
                    yield order[start : start + self.size]
