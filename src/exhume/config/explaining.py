"""What is wrong with a configuration, in one line: which key, which value, what was meant."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, get_args

from pydantic import ValidationError

from exhume.config.audit import Config
from exhume.config.base import Table
from exhume.config.defences import DefenceTable, keys_of_defence
from exhume.protocol.names import meant

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

AT_THE_TOP = ("data", "release", "knowledge", "options", "grid", "start")
"""Tables of a setting that may stand at the top level, where there is only one."""
_TAGS = ("linear", "network", "columns", "half")
"""Parts of pydantic's error location that name a type and are not keys of the file."""
_LONG = 80
_OTHER_NAMES = {
    "lr": "learning_rate",
    "wd": "weight_decay",
    "eps": "epsilon",
    "alpha": "smoothing",
    "betas": "beta1",
    "clip_grad_norm": "gradient_norm",
    "max_grad_norm": "gradient_norm",
    "grad_clip": "gradient_norm",
    "gradient_clip_val": "gradient_norm",
    "early_stopping": "stop_after",
    "warmup": "warm_up",
    "warmup_steps": "warm_up",
    "scheduler": "schedule",
    "lr_scheduler": "schedule",
    "num_epochs": "epochs",
    "num_train_epochs": "epochs",
    "max_epochs": "epochs",
    "criterion": "loss",
    "num_classes": "classes",
    "checkpoint": "file",
    "weights": "file",
    "architecture": "model",
    "train": "training",
}
"""What PyTorch and its users call some of the keys."""


def explained(error: ValidationError, tables: Any) -> str:
    """Return the first thing that is wrong with ``tables``, and how many more things are.

    An unknown key goes first: it may be why another one is missing.
    """
    errors = sorted(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
    first = errors[0]
    unknown = first["type"] == "extra_forbidden"
    *above, last = first["loc"] or ("",)
    # An unknown key may have the name of a type.
    keys = [*_path(above, tables), last] if unknown else _path(first["loc"], tables)
    whole = keys[:1] == ["setting"] and len(keys) == 2 and isinstance(first["input"], dict)
    where = _whole_setting(keys[1], tables) if whole else _spelled(keys)
    if unknown:
        text = f"unknown key {where!r}{_suggestion(first['loc'], keys, tables)}"
    elif first["type"] == "missing":
        text = f"{where!r} is missing"
    else:
        same = [one for one in errors if _path(one["loc"], tables) == keys]
        value = first["input"]
        shown = "" if isinstance(value, dict) else f", got {_short(value)}"
        said = f"{', or '.join(map(_message, same))}{shown}{_meant_value(first)}"
        text = f"{where}: {said}" if where else said
        errors = [one for one in errors if one is first or one not in same]
    more = len(errors) - 1
    return text + (f" (and {more} more)" if more else "")


def _message(error: ErrorDetails) -> str:
    """Return what is wrong with one value, in words of a file and not of Python."""
    if error["type"] in ("model_type", "dict_type", "model_attributes_type"):
        return "it should be a table: { key = value }"
    if error["type"] == "bool_type":
        return "it should be true or false"
    if error["type"] in ("path_type", "is_instance_of") and "Path" in error["msg"]:
        return "it should be the name of a file"
    message = error["msg"].removeprefix("Value error, ")
    return f"{message[:1].lower()}{message[1:]}"


def _meant_value(error: ErrorDetails) -> str:
    """Suggest the one of the possible values that was meant."""
    if error["type"] != "literal_error" or not isinstance(error["input"], str):
        return ""
    close = meant(error["input"], re.findall(r"'([^']*)'", error["ctx"]["expected"]))
    return "" if close is None else f"; did you mean {close!r}?"


def _path(location: Sequence[int | str], tables: Any) -> list[int | str]:
    """Return the keys and places that lead to a location, as the file has them.

    A table with names of the user's own, such as [grid], is validated as a list of pairs.
    """
    parts, keys = list(location), list[int | str]()
    while parts:
        part = parts.pop(0)
        if part in _TAGS and not (isinstance(tables, dict) and part in tables):
            continue
        if isinstance(tables, dict) and isinstance(part, int):
            part = list(tables)[part]
            parts = parts[int(isinstance((*parts, "")[0], int)) :]
        keys.append(part)
        tables = _inside(tables, part)
        if tables is not None and not isinstance(tables, dict | list | tuple):
            # What follows names the types that a plain value might have had.
            break
    return keys


def _inside(tables: Any, key: int | str) -> Any:
    try:
        return tables[key]
    except (KeyError, IndexError, TypeError):
        return None


def _whole_setting(place: int | str, tables: Any) -> str:
    """Return the name of a setting that is wrong as a whole; "" where it is the only one."""
    settings = _inside(tables, "setting")
    if settings is None or len(settings) == 1:
        return ""
    name = _inside(_inside(settings, place), "name")
    return f"setting {name!r}" if isinstance(name, str) else f"setting.{place}"


def _spelled(keys: Sequence[int | str]) -> str:
    spelled = ".".join(map(str, keys)).removeprefix("setting.0.") or "the file"
    # A key may hold a line break.
    return spelled if spelled.isprintable() else ascii(spelled)[1:-1]


def _short(value: object) -> str:
    text = repr(str(value) if isinstance(value, PurePath) else value)
    return text if len(text) <= _LONG else f"{text[: _LONG - 1]}…"


def _suggestion(location: Sequence[int | str], keys: Sequence[int | str], tables: Any) -> str:
    """Say which key was probably meant, or in which other table there is one of that name."""
    key = str(keys[-1])
    for part in keys[:-1]:
        tables = _inside(tables, part)
    kinds = _kinds_at(location[:-1])
    known = {name for kind in kinds for name in _keys_of(kind, tables)}
    if Config in kinds:
        known |= set(AT_THE_TOP)
    # A misspelled key may be why this was taken for a table of another kind.
    any_kind = _kinds_at([part for part in location[:-1] if part not in _TAGS])
    every = known.union(*(kind.model_fields for kind in any_kind))
    other = _OTHER_NAMES.get(key, key)
    close = other if other in every else meant(key, sorted(known)) or meant(key, sorted(every))
    if close is not None and close != key:
        return f"; did you mean {close!r}?"
    if key in every:
        return f"; it goes with another kind of {keys[-2]}"
    elsewhere = [path for path in _paths(Config) if path[-1] == other]
    if not elsewhere:
        return f"; there are {', '.join(sorted(known))}" if known else ""
    beside = str(keys[-2:][0])
    # [audit] states for all settings what a [[setting]] may state for itself.
    nearest = min(elsewhere, key=lambda p: (beside not in p[:-1], p[:-1] == ("setting",), len(p)))
    table = ".".join(one for one in nearest[:-1] if one != "setting")
    name = "it" if other == key else f"{other!r}"
    return f"; {name} belongs to {f'[{table}]' if table else '[[setting]], outside its tables'}"


def _kinds_at(location: Sequence[int | str]) -> list[type[Table]]:
    """Return the tables that may stand at a location."""
    kinds: list[type[Table]] = [Config]
    for part in location:
        if part in _TAGS:
            kinds = [one for one in kinds if one.__name__.lower().startswith(str(part))] or kinds
        elif isinstance(part, str):
            fields = [kind.model_fields[part] for kind in kinds if part in kind.model_fields]
            kinds = [one for field in fields for one in _tables_in(field.annotation)]
    return kinds


def _tables_in(annotation: Any) -> list[type[Table]]:
    if isinstance(annotation, type) and issubclass(annotation, Table):
        return [annotation]
    return [one for part in get_args(annotation) for one in _tables_in(part)]


def _keys_of(kind: type[Table], table: Any) -> tuple[str, ...]:
    if kind is DefenceTable and isinstance(_inside(table, "name"), str):
        return keys_of_defence(table["name"])
    return tuple(kind.model_fields)


def _paths(kind: type[Table], before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of every key in a table and in those inside it."""
    for name, field in kind.model_fields.items():
        yield (*before, name)
        for inner in _tables_in(field.annotation):
            yield from _paths(inner, (*before, name))
