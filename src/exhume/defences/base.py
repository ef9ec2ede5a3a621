"""A defence wraps a mechanism into another mechanism, and keeps the accounting right."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from exhume.errors import InputError
from exhume.mechanism import Mechanism
from exhume.records import Records


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
