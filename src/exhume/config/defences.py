"""Defences as tables, derived from their classes: a name, and the settings of its class."""

from __future__ import annotations

from dataclasses import MISSING, fields
from functools import lru_cache
from inspect import isabstract
from typing import Annotated, Any, cast, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, create_model, model_validator

from exhume import defences
from exhume.config.base import Table
from exhume.protocol.defence import ListedDefence, Place
from exhume.protocol.limits import Limits, limits_of, settings_of
from exhume.protocol.names import no_such


def listed_defences() -> tuple[type[ListedDefence], ...]:
    """Return every defence that a file can name, by where it goes and then by name."""
    named = [getattr(defences, name) for name in defences.__all__]
    concrete = [d for d in named if isinstance(d, type) and not isabstract(d)]
    found = [d for d in concrete if issubclass(d, ListedDefence)]
    places = list(Place)
    return tuple(sorted(found, key=lambda d: (places.index(d.place), d.name)))


class DefenceTable(Table):
    """A defence: its ``name``, and the settings for which its class has fields."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    name: str

    @property
    def kind(self) -> type[ListedDefence]:
        """The class of the defence."""
        return _named(self.name)

    def settings(self) -> dict[str, Any]:
        """Return the settings by name, defaults included."""
        return dict(self.model_extra or {})

    @model_validator(mode="before")
    @classmethod
    def _with_its_settings(cls, table: Any) -> Any:
        if not isinstance(table, dict) or not isinstance(table.get("name"), str):
            return table
        return _keys_of(_named(table["name"])).model_validate(table).model_dump()


def keys_of_defence(name: str) -> tuple[str, ...]:
    """Return the keys of the table of a defence."""
    return ("name", *settings_of(_named(name)))


def _named(name: str) -> type[ListedDefence]:
    known = {one.name: one for one in listed_defences()}
    if name not in known:
        raise ValueError(no_such("defence", name, known))
    return known[name]


@lru_cache
def _keys_of(kind: type[ListedDefence]) -> type[BaseModel]:
    """Return the keys of a defence's table: its settings, of which some have defaults."""
    defaults = {f.name: ... if f.default is MISSING else f.default for f in fields(cast(Any, kind))}
    keys = {n: (_limited(setting), defaults[n]) for n, setting in settings_of(kind).items()}
    made = cast(Any, create_model)(f"{kind.__name__}Keys", __base__=Table, name=str, **keys)
    return cast("type[BaseModel]", made)


def _limited(setting: Any) -> Any:
    """Return the type of a key, with the limits that the type of the setting states."""
    limits = limits_of(setting)
    if limits is None:
        return setting
    return Annotated[get_args(setting)[0], AfterValidator(lambda value: _within(limits, value))]


def _within(limits: Limits, value: float) -> float:
    if not limits.allow(value):
        raise ValueError(f"must be {limits.text}")
    return value
