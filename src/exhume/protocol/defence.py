"""A defence wraps a mechanism in another mechanism, and keeps the privacy accounting right."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import takewhile
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, cast

import numpy as np

from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.errors import InputError
from exhume.protocol.limits import require_settings
from exhume.protocol.mechanism import Mechanism, layers
from exhume.protocol.records import Records
from exhume.protocol.release import Gradient, Release, Update, mapped_together

if TYPE_CHECKING:
    import dp_accounting
    import torch

ReleaseOf: TypeAlias = "Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, ...]]"
"""What a batch x with responses y would release, one tensor per parameter, with its graph."""


@dataclass(frozen=True, eq=False)
class SimulatedInner:
    """What an adversary simulates of the mechanism inside a defence.

    ``sent`` marks (True) the entries of each parameter that were sent. It is None for a parameter
    that was not released, and None as a whole if zeros do not show which entries were sent.
    ``drawn`` says that unknown draws are simulated inside.
    """

    release: ReleaseOf
    sent: tuple[torch.Tensor | None, ...] | None
    drawn: bool


class Place(Enum):
    """Where a defence goes; the value says it in words."""

    STEP = "inside a gradient step"
    SENT = "on a gradient or update that is sent"
    PARAMETERS = "on the parameters of a model"
    ANY = "on any release"


class ListedDefence(ABC):
    """What an audit's file can name as a defence, with the settings of its table.

    Subclasses are frozen dataclasses. All their fields except ``inner`` are the keys of the table;
    the types of the fields say which values are allowed. ``exhume list`` prints the first line of
    the docstring.
    """

    name: ClassVar[str]
    place: ClassVar[Place] = Place.ANY

    @classmethod
    @abstractmethod
    def around(cls, mechanism: Mechanism, settings: Mapping[str, Any], records: int) -> Mechanism:
        """Return ``mechanism`` with the defence around it; a release is about ``records``."""


class Defence(ListedDefence, Mechanism):
    """A mechanism around another one.

    Subclasses are frozen dataclasses with a field ``inner``, the mechanism that they protect; their
    other fields are settings. The adversary knows the defence, as it knows any mechanism.
    """

    inner: Mechanism
    smoothed: ClassVar[bool] = False
    """Whether an adversary simulates a smooth substitute for the release, to have a slope."""

    @classmethod
    def around(cls, mechanism: Mechanism, settings: Mapping[str, Any], records: int) -> Mechanism:
        """Return the defence with these settings around ``mechanism``."""
        # Every defence is a frozen dataclass, which its base class can't say.
        return cast(Mechanism, cast(Any, cls)(mechanism, **settings))

    def __post_init__(self) -> None:
        """Raise InputError if a setting does not fit the type of its field."""
        require_settings(self)

    @property
    def wrapped(self) -> Mechanism:
        """The protected mechanism."""
        return self.inner

    @abstractmethod
    def describe(self) -> str:
        """Return a short description for the report."""

    @property
    def sending_chance(self) -> float | None:
        """The probability that an entry is sent; 0 if its size decides, None if all are sent."""
        return None

    @property
    def sent_factor(self) -> float:
        """The factor on an entry that is sent, as far as the settings alone determine it."""
        return 1.0

    def simulated_release(self, inner: SimulatedInner) -> ReleaseOf:
        """Return the mechanism that an adversary who knows the defence differentiates through.

        By default there is none: raises InputError.
        """
        raise InputError(f"what {type(self).__name__} releases can't be matched")

    def deviations(self, arrays: Mapping[str, FloatArray], records: int) -> dict[str, float]:
        """Return those of the inner mechanism."""
        return self.inner.deviations(arrays, records)

    def in_one_round(self, inner: Mechanism) -> Mechanism:
        """Return what a client does in one round of training, around ``inner``."""
        # Every defence is a frozen dataclass, which its base class can't say.
        return cast(Mechanism, replace(cast(Any, self), inner=inner))


def undefended(mechanism: Mechanism) -> Mechanism:
    """Return the mechanism without the defences around it."""
    return next(one for one in layers(mechanism) if not isinstance(one, Defence))


def shown(mechanism: Mechanism) -> list[Defence]:
    """Return the defences whose zeros are still zeros in what was sent, the outermost first."""
    showing = takewhile(lambda one: one.shows_zeros, layers(mechanism))
    return [one for one in showing if isinstance(one, Defence)]


def defended(mechanism: Mechanism) -> bool:
    """Tell whether there is any defence around, between or inside steps."""
    return any(isinstance(one, Defence) for one in layers(mechanism))


class Blurring(Defence):
    """A defence that adds independent noise of a known size to every released number.

    Rounding counts as noise: its error is nearly uniform. Attacks that know how noise propagates
    through the training (``Knowledge.training``) adapt to it by these two methods.
    """

    @abstractmethod
    def deviation(self, records: int) -> float:
        """Return the standard deviation added to each number, with ``records`` in the data."""

    def prepared(self, data: Records) -> Records:
        """Return the data that the inner mechanism gets instead of ``data``."""
        return data

    def simulated_release(self, inner: SimulatedInner) -> ReleaseOf:
        """Return the inner release: the noise is omitted."""
        return inner.release

    def deviations(self, arrays: Mapping[str, FloatArray], records: int) -> dict[str, float]:
        """Return the inner deviations combined with this one."""
        own = self.deviation(records)
        inner = self.inner.deviations(arrays, records)
        return {n: math.hypot(s, own) for n, s in inner.items()}


class Transform(Defence):
    """A defence that only changes what is sent: post-processing of a gradient.

    Deterministic ones have two implementations. ``changed`` is what the client does; ``simulated``
    is what an adversary differentiates. Tests check that the two agree.
    """

    place: ClassVar[Place] = Place.SENT

    @abstractmethod
    def changed(self, arrays: Mapping[str, Array], rng: np.random.Generator) -> dict[str, Array]:
        """Return what is sent instead of ``arrays``, by name."""

    def simulated(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the release that the adversary expects, with its graph: one tensor per parameter.

        Random choices are not simulated: entries that were set to 0 are visible in the release.
        """
        return list(values)

    def simulated_release(self, inner: SimulatedInner) -> ReleaseOf:
        """Return the inner release, changed."""
        return lambda x, y: tuple(self.simulated(inner.release(x, y)))

    def under_noise(self, records: int) -> tuple[Mechanism, float] | None:
        """Return the inner noise: a later change can only lose information."""
        return self.inner.under_noise(records)

    def publish(self, data: Records, *, rng: np.random.Generator) -> Release:
        """Publish the inner mechanism's release after the change."""
        return self._protected(self.inner.publish(data, rng=rng), rng)

    def publish_each(
        self, fixed_set: Records, targets: Records, *, rngs: Sequence[np.random.Generator]
    ) -> Sequence[Release]:
        """Publish with each target in turn, with separate random draws."""
        releases = self.inner.publish_each(fixed_set, targets, rngs=rngs)
        return [self._protected(r, rng) for r, rng in zip(releases, rngs, strict=True)]

    def event(self, records: int) -> dp_accounting.DpEvent:
        """Return the inner event: post-processing neither costs nor gains privacy."""
        return self.inner.event(records)

    def _protected(self, release: Release, rng: np.random.Generator) -> Release:
        if not isinstance(release, Gradient | Update):
            kind = type(release).__name__.lower()
            raise InputError(f"{self.name} is for gradients and updates, not for {kind}")
        return mapped_together(release, lambda arrays: self.changed(arrays, rng))


def whole_norm(arrays: Mapping[str, Array]) -> float:
    """Return the Euclidean norm of all arrays together."""
    return float(np.sqrt(sum(float(np.square(a, dtype=np.float64).sum()) for a in arrays.values())))
