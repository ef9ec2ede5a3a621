"""The reference of every key of an audit's file, made from the configuration types."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, cast, get_args, get_type_hints

from pydantic import TypeAdapter
from tools.site.page import GeneratedPage, table
from tools.site.words import default_in_words, in_toml, in_words

from exhume.attacks.catalogue import ATTACKS
from exhume.config import Config, listed_defences
from exhume.config.base import Table
from exhume.config.defences import DefenceTable
from exhume.config.setting_tables import OptionsTable
from exhume.protocol.limits import settings_of

MEANINGS = Path(__file__).parents[2] / "docs/reference/keys.toml"


@dataclass(frozen=True)
class Key:
    """A key of the file: the table it stands in, its type with limits, and its default."""

    table: str
    name: str
    type: Any
    default: Any
    owner: str = ""
    """Of what kind of table, attack or defence it is a key, where several share the table."""

    example_given: Any = None
    """An example in place of the one that docs/reference/keys.toml gives."""

    @property
    def said(self) -> dict[str, Any]:
        """Return what docs/reference/keys.toml says: a meaning and perhaps an example."""
        return cast(dict[str, Any], said().get(self.table, {}).get(self.name, {}))

    @property
    def meaning(self) -> str:
        """Return what the key means; a key without a meaning is an error of the documentation."""
        if not self.said.get("meaning"):
            raise LookupError(f"{MEANINGS.name} says no meaning of [{self.table}] {self.name}")
        return str(self.said["meaning"])

    @property
    def example(self) -> Any:
        """Return a value for the key that its type allows; None where it is a table of its own."""
        if self.example_given is not None:
            return self.example_given
        if "example" in self.said:
            return self.said["example"]
        choices = _choices(self.type)
        others = [one for one in choices if one != self.default]
        return next(iter(others or choices), None)

    @property
    def example_line(self) -> str:
        """Return the example as a line of TOML."""
        return f"{self.name} = {in_toml(self.example)}"

    def validate(self) -> None:
        """Raise where the type of the key does not allow the example."""
        value = _frozen(self.example)
        if isinstance(value, str) and "file" in in_words(self.type):
            value = Path(value)
        TypeAdapter(self.type).validate_python(value, strict=True)


@cache
def said() -> dict[str, Any]:
    """Return what docs/reference/keys.toml says, by table and key."""
    return tomllib.loads(MEANINGS.read_text(encoding="utf-8"))


def _frozen(value: Any) -> Any:
    """Return a value with tuples in place of lists, as the reader of files has it."""
    if isinstance(value, dict):
        return {name: _frozen(inner) for name, inner in value.items()}
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def keys() -> tuple[Key, ...]:
    """Return every key that a file may have, table by table."""
    return (
        *_keys_of(Config, ""),
        *(key for defence in listed_defences() for key in _settings(defence, "defences")),
        *(key for attack in ATTACKS for key in _settings(attack, "options")),
    )


def _keys_of(kind: type[Table], path: str) -> Iterator[Key]:
    """Yield the keys of a table, each followed by those of the tables inside it."""
    types = get_type_hints(kind, include_extras=True)
    for name, field in kind.model_fields.items():
        inside = [one for one in _tables_in(types[name]) if one not in (DefenceTable, OptionsTable)]
        if path:
            default = MISSING if field.is_required() else field.default
            yield Key(path, name, types[name], default, kind.__name__)
        for one in inside:
            below = f"{path}.{name}".removeprefix(".").removeprefix("setting.")
            yield from _keys_of(one, below)


def _tables_in(annotation: Any) -> list[type[Table]]:
    if isinstance(annotation, type) and issubclass(annotation, Table):
        return [annotation]
    return [one for part in get_args(annotation) for one in _tables_in(part)]


def _settings(kind: type, path: str) -> Iterator[Key]:
    """Yield the settings of an attack or a defence: the fields of its class."""
    types = settings_of(kind)
    for one in fields(cast(Any, kind)):
        if one.name in types:
            default = one.default
            if default is MISSING and one.default_factory is not MISSING:
                default = one.default_factory()
            yield Key(path, one.name, types[one.name], default, cast(Any, kind).name)


def _choices(annotation: Any) -> list[Any]:
    """Return the values of a Literal or of a flag."""
    if annotation is bool:
        return [True, False]
    found = [one for part in get_args(annotation) for one in _choices(part)]
    literal = [one for one in get_args(annotation) if isinstance(one, str)]
    return found or literal


def page() -> GeneratedPage:
    """Return the page of all keys."""
    sections = [_INTRODUCTION]
    every = keys()
    for path, head in _HEADS.items():
        here = [key for key in every if key.table == path]
        sections += [f"## {head}", *_of_owners(here)]
    sections += [_OTHERS]
    return GeneratedPage("reference/toml.md", "The TOML file", "\n\n".join(sections) + "\n")


def rows_of(some: list[Key]) -> str:
    """Return a table of keys: type, default, meaning, example; on a phone, a block per key."""
    heads = ("key", "type", "default", "meaning", "example")
    rows = table(heads, [_row(key) for key in some])
    return f'<div class="keys" markdown>\n\n{rows}\n\n</div>'


def _row(key: Key) -> tuple[str, ...]:
    kind = f"[table](#{_anchor(key)})" if _tables_in(key.type) else in_words(key.type)
    shown = "" if key.example is None else f"`{key.example_line}`"
    return (f"`{key.name}`", kind, default_in_words(key.default), key.meaning, shown)


def _of_owners(here: list[Key]) -> Iterator[str]:
    """Yield the keys of a table; where two kinds of it share a path, each kind with a title."""
    owners = list(dict.fromkeys(key.owner for key in here))
    for owner in owners:
        if len(owners) > 1:
            yield f"### {_OWNERS[owner]}"
        yield rows_of([key for key in here if key.owner == owner])


def _anchor(key: Key) -> str:
    """Return the anchor of the section about the table that a key leads to."""
    path = _ELSEWHERE.get(key.name) or f"{key.table}.{key.name}".removeprefix("setting.")
    return path.replace(".", "")


_ELSEWHERE = {"defences": "release.defences", "grid": "release.defences", "options": "options"}
_OWNERS = {
    "LinearReleaseTable": "release of a linear model",
    "NetworkReleaseTable": "release of a network",
    "EstimatorReleaseTable": "release of an estimator of scikit-learn",
}
_HEADS = {
    "setting": "`[[setting]]`",
    "data": "`[data]`",
    "release": "`[release]`",
    "release.penalty": "`[release.penalty]`",
    "release.solver": "`[release.solver]`",
    "release.warm_up": "`[release.warm_up]`",
    "release.imprint": "`[release.imprint]`",
    "release.convolutions": "`[[release.convolutions]]`",
    "knowledge": "`[knowledge]`",
    "knowledge.training": "`[knowledge.training]`",
    "knowledge.training.schedule": "`[knowledge.training.schedule]`",
    "knowledge.training.augmentation": "`[knowledge.training.augmentation]`",
    "knowledge.training.clipping": "`[knowledge.training.clipping]`",
    "utility": "`[utility]`",
    "start": "`[start]`",
    "audit": "`[audit]`",
}
_INTRODUCTION = """# The TOML file

Every key of the file that `exhume audit` reads. Types, limits and defaults are those of the code
(`src/exhume/config/`); a key that is not listed here is refused, with the key that was probably
meant. `exhume audit --show-example` prints a complete file.

Tables of one setting may stand at the top level, as in `[release]`. A file with several settings
has `[[setting]]` before each, and its tables are `[setting.release]` and so on. Paths are relative
to the file."""
_OTHERS = """## `[[release.defences]]`

`release.defences` is a list of tables, such as
`defences = [{ name = "rounding", decimals = 2 }]`. Each has a `name` and the settings of that
defence: see [the defences](defences/index.md). In `[grid]`, each name leads to such a list.

## `[options]`

Each table below `[options]` has the name of an attack, such as `[options.geiping]` with
`steps = 400`. The keys are on the [page of the attack](attacks/index.md)."""
