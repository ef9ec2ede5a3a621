"""The allowed values of a defence's settings, written once: in the type of the field."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from exhume.protocol.errors import InputError


@dataclass(frozen=True)
class Limits:
    """The numbers that a setting may be; ``text`` describes them."""

    text: str
    gt: float = -math.inf
    ge: float = -math.inf
    lt: float = math.inf
    le: float = math.inf

    def allow(self, value: float) -> bool:
        """Return whether a setting may be ``value``."""
        return value > self.gt and value >= self.ge and value < self.lt and value <= self.le


Positive = Annotated[float, Limits("a positive number", gt=0)]
Share = Annotated[float, Limits("between 0 and 1", gt=0, lt=1)]


def at_least(least: int) -> Limits:
    """Return the limits of a number that is at least ``least``."""
    return Limits(f"at least {least}", ge=least)


def from_to(least: int, most: int) -> Limits:
    """Return the limits of a number from ``least`` to ``most``, both included."""
    return Limits(f"from {least} to {most}", ge=least, le=most)


@lru_cache
def settings_of(kind: type) -> dict[str, Any]:
    """Return the types of a dataclass's settings by name: of all fields but ``inner``."""
    types = get_type_hints(kind, include_extras=True)
    names = [one.name for one in fields(kind)]
    return {n: types[n] for n in names if n != "inner"}


def limits_of(setting: Any) -> Limits | None:
    """Return the limits that the type of a setting states, or None."""
    return next((one for one in get_args(setting) if isinstance(one, Limits)), None)


def require_settings(defence: object) -> None:
    """Raise InputError if a setting does not fit the type of its field."""
    kind: type = type(defence)
    for name, setting in settings_of(kind).items():
        value, limits = getattr(defence, name), limits_of(setting)
        if limits is not None and not limits.allow(value):
            raise InputError(f"{name} must be {limits.text}, got {value}")
        if get_origin(setting) is Literal and value not in get_args(setting):
            choices = " or ".join(map(repr, get_args(setting)))
            raise InputError(f"{name} must be {choices}, got {value!r}")
