"""A defence wraps a mechanism into another mechanism, and keeps the accounting right."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exhume.arrays import Array
from exhume.errors import InputError
from exhume.mechanism import Mechanism
from exhume.records import Records
from exhume.release import Gradient, Release, Update, mapped_together

if TYPE_CHECKING:
    import dp_accounting
    import torch


class Defence(Mechanism):
    """A mechanism around another one.

    Subclasses are frozen dataclasses with a field ``inner``, the mechanism that they protect; their
    other fields are settings. The adversary knows the defence, as it knows any mechanism.
    """

    name: ClassVar[str]
    inner: Mechanism

    @abstractmethod
    def describe(self) -> str:
        """Say in a few words what is done, for the report."""


def undefended(mechanism: Mechanism) -> Mechanism:
    """Return the mechanism under any number of defences."""
    while isinstance(mechanism, Defence):
        mechanism = mechanism.inner
    return mechanism


def require_positive(what: str, value: float) -> None:
    """Raise InputError unless ``value`` is a positive, finite number."""
    if not 0 < value < float("inf"):
        raise InputError(f"{what} must be a positive number, got {value}")


class Blurring(Defence):
    """A defence that adds independent noise of a known size to every released number.

    Rounding counts: its error is all but uniform. Attacks that know how noise spreads through the
    training (``Knowledge.training``) adapt to it by these two methods.
    """

    @abstractmethod
    def deviation(self, records: int) -> float:
        """Return the standard deviation added to each number, with ``records`` in the data."""

    def prepared(self, data: Records) -> Records:
        """Return what the inner mechanism is given instead of ``data``."""
        return data


class Transform(Defence):
    """A defence that changes what is sent and nothing else: post-processing of a gradient.

    Deterministic ones are written down twice: ``changed`` is what the client does, ``simulated``
    what an adversary differentiates through; tests hold the two together.
    """

    @abstractmethod
    def changed(self, arrays: Mapping[str, Array], rng: np.random.Generator) -> dict[str, Array]:
        """Return what is sent instead of ``arrays``, by name."""

    def simulated(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return what the adversary expects to be sent, with its graph; one tensor a parameter.

        Random choices are left out: what was set to 0 shows in what was sent.
        """
        return list(values)

    def publish(self, data: Records, *, rng: np.random.Generator) -> Release:
        """Publish the inner mechanism's release, changed."""
        return self._protected(self.inner.publish(data, rng=rng), rng)

    def publish_each(
        self, fixed_set: Records, targets: Records, *, rngs: Sequence[np.random.Generator]
    ) -> Sequence[Release]:
        """Publish with each target in turn; what is drawn is each one's own."""
        releases = self.inner.publish_each(fixed_set, targets, rngs=rngs)
        return [self._protected(r, rng) for r, rng in zip(releases, rngs, strict=True)]

    def event(self, records: int) -> dp_accounting.DpEvent:
        """Post-processing costs nothing and buys nothing: the event stays the inner one's."""
        return self.inner.event(records)

    def _protected(self, release: Release, rng: np.random.Generator) -> Release:
        if not isinstance(release, Gradient | Update):
            kind = type(release).__name__.lower()
            raise InputError(f"{self.name} is for gradients and updates, not for {kind}")
        return mapped_together(release, lambda arrays: self.changed(arrays, rng))


def whole_norm(arrays: Mapping[str, Array]) -> float:
    """Return the Euclidean norm of everything together."""
    return float(np.sqrt(sum(float(np.square(a, dtype=np.float64).sum()) for a in arrays.values())))
