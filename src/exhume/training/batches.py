"""The records of each training step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from exhume.protocol.arrays import Array, frozen
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


@dataclass(frozen=True, eq=False)
class GivenBatches(Batches):
    """Mini-batches in an order that was recorded: that of a training outside Exhume.

    ``order`` (epochs, m) numbers the records of each epoch as they came, from 0; a batch is the
    next ``size`` of them. A row shorter than the training set leaves records out, as a loader does
    that drops the last batch. No record comes twice per epoch.

    >>> batches = GivenBatches(2, order=np.array([[2, 0, 1], [1, 2, 0]]))
    >>> [step.tolist() for step in batches.steps(3, 2, np.random.default_rng(0))]
    [[2, 0], [1], [1, 2], [0]]
    """

    order: Array = field(default_factory=lambda: np.zeros((1, 0), dtype=np.int64))

    def __post_init__(self) -> None:
        super().__post_init__()
        order = np.asarray(self.order)
        if order.ndim != 2 or not order.size or order.dtype.kind not in "iu":
            raise InputError(
                "the order of the batches must be whole numbers, one row per epoch, got shape "
                f"{order.shape} of type {order.dtype}"
            )
        if any(len(np.unique(row)) < len(row) for row in order):
            raise InputError("the order of the batches has a record twice in one epoch")
        if self.seed is None or self.poisson:
            raise InputError("an order that is given is neither secret nor drawn by Poisson")
        object.__setattr__(self, "order", frozen(order, np.int64))

    def __eq__(self, other: object) -> bool:
        """Whether the other has the same batches in the same order."""
        if not isinstance(other, GivenBatches):
            return NotImplemented
        return self.size == other.size and np.array_equal(self.order, other.order)

    def __hash__(self) -> int:
        """Return the hash of size and order."""
        return hash((self.size, self.order.tobytes()))

    def steps_an_epoch(self, count: int) -> int:
        """Return the number of steps per epoch, which the order shows."""
        return -(-len(self.order[0]) // self.size)

    def steps(self, count: int, epochs: int, rng: np.random.Generator) -> Iterator[Index]:
        """Yield the records of each step; InputError if the order is not for ``count`` records."""
        self.require(count, epochs)
        for row in self.order.copy():  # PyTorch warns of arrays that it may not write
            for start in range(0, len(row), self.size):
                yield row[start : start + self.size]

    def require(self, count: int, epochs: int) -> None:
        """Raise InputError if the order has other records or other epochs than a training."""
        if len(self.order) != epochs:
            raise InputError(
                f"the order of the batches has {len(self.order)} rows, one per epoch, but the "
                f"training has {epochs} epochs"
            )
        low, high = int(self.order.min()), int(self.order.max())
        if low < 0 or high >= count:
            raise InputError(
                f"the order of the batches numbers records from {low} to {high}, but there are "
                f"{count}: 0 to {count - 1}"
            )
