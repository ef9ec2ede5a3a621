"""Starting points of a search for training records, chosen separately (Runkel et al. 2024, §4).

A reconstruction from weights alone depends on the starting point. The start is therefore an
argument, and all weights-only attacks use the same kinds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np

from exhume.protocol.arrays import Array, FloatArray, frozen
from exhume.protocol.errors import InputError


class Start(ABC):
    """Draws starting records. Subclasses are frozen dataclasses."""

    @abstractmethod
    def draw(
        self, count: int, record_shape: tuple[int, ...], rng: np.random.Generator
    ) -> FloatArray:
        """Return starting records (count, *record shape), on the scale of the records."""


@dataclass(frozen=True)
class UniformStart(Start):
    """Every entry from U(``low``, ``high``): the paper's random start."""

    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise InputError(f"low must lie below high, got {self.low} and {self.high}")

    def draw(
        self, count: int, record_shape: tuple[int, ...], rng: np.random.Generator
    ) -> FloatArray:
        """Draw independent entries."""
        return rng.uniform(self.low, self.high, size=(count, *record_shape))


@dataclass(frozen=True)
class GaussianStart(Start):
    """Every entry from N(``mean``, ``scale``²); ``scale`` 1 is the untuned start of the paper."""

    scale: float = 1.0
    mean: float = 0.0

    def __post_init__(self) -> None:
        if not self.scale > 0:
            raise InputError(f"scale must be positive, got {self.scale}")

    def draw(
        self, count: int, record_shape: tuple[int, ...], rng: np.random.Generator
    ) -> FloatArray:
        """Draw independent entries."""
        return self.mean + self.scale * rng.standard_normal((count, *record_shape))


@dataclass(frozen=True, eq=False)
class GivenStart(Start):
    """Records given by the caller, repeated in their order.

    An adversary may have another partition of the data. The training records themselves are for
    studies only: an attack that starts there shows whether it stays there.
    """

    records: Array = field(repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "records", frozen(self.records, dtype=np.float64))
        if self.records.ndim < 2 or not len(self.records):
            raise InputError(
                f"starting records need shape (n, features, ...), got {self.records.shape}"
            )

    def draw(
        self, count: int, record_shape: tuple[int, ...], rng: np.random.Generator
    ) -> FloatArray:
        """Return the first ``count`` records, repeating them if there are fewer."""
        if self.records.shape[1:] != record_shape:
            raise InputError(
                f"starting records of shape {self.records.shape[1:]} were given, "
                f"a record has shape {record_shape}"
            )
        return np.asarray(self.records[np.arange(count) % len(self.records)])


@dataclass(frozen=True, eq=False)
class MixedStart(Start):
    """``second``·(``first``·truth + (1 − ``first``)·partition) + (1 − ``second``)·noise.

    Equation 10 of Runkel et al. 2024: ``first`` is λ₁ and ``second`` λ₂, both in [0, 1].
    """

    truth: Start
    partition: Start
    noise: Start = field(default_factory=UniformStart)
    first: float = 0.5
    second: float = 0.5

    def __post_init__(self) -> None:
        if not (0 <= self.first <= 1 and 0 <= self.second <= 1):
            raise InputError(f"first and second lie in [0, 1]: {self.first}, {self.second}")

    def draw(
        self, count: int, record_shape: tuple[int, ...], rng: np.random.Generator
    ) -> FloatArray:
        """Draw the three starts and mix them."""
        truth = self.truth.draw(count, record_shape, rng)
        partition = self.partition.draw(count, record_shape, rng)
        noise = self.noise.draw(count, record_shape, rng)
        images = self.first * truth + (1.0 - self.first) * partition
        return self.second * images + (1.0 - self.second) * noise
