"""The records of each training step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from exhume.protocol.errors import InputError
from exhume.protocol.seeds import stream

Index = NDArray[np.int64]


@dataclass(frozen=True)
class Batches:
    """Mini-batches of ``size``, shuffled again each epoch; the last of an epoch may be smaller.

    ``seed`` fixes the order for everybody who knows the training. None draws it from the training's
    own random stream, which the adversary does not know. With ``poisson`` each record is in each
    step with probability size / n instead, as the accounting of DP-SGD requires.
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
        """Return the number of steps per epoch over ``count`` records."""
        return -(-count // self.size)

    def steps(self, count: int, epochs: int, rng: np.random.Generator) -> Iterator[Index]:
        """Yield the records of each step; ``rng`` is used only without a seed."""
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
