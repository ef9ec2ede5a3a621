"""Types and values of keys in words, and as TOML."""

from __future__ import annotations

import json
from dataclasses import MISSING
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import annotated_types
from pydantic.fields import FieldInfo

from exhume.config.base import Table
from exhume.protocol.limits import Limits

_PLAIN = {bool: "true or false", int: "whole number", float: "number", str: "text", Path: "file"}


def in_words(annotation: Any) -> str:
    """Return a type in words.

    >>> in_words(tuple[int, ...] | None)
    'list of whole numbers'
    >>> in_words(Literal["raw", "fixed-set"])
    '`"raw"` or `"fixed-set"`'
    """
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return ", ".join([in_words(parts[0]), *_limits(parts[1:])])
    if origin is Literal:
        return " or ".join(f"`{in_toml(one)}`" for one in parts)
    if origin is tuple:
        return _list_of(parts)
    if isinstance(annotation, type):
        return "table" if issubclass(annotation, Table) else "Python object"
    return " or ".join(dict.fromkeys(in_words(one) for one in parts if one is not NoneType))


def _list_of(parts: tuple[Any, ...]) -> str:
    if Ellipsis in parts:
        word, _, limits = in_words(parts[0]).partition(",")
        many = word if word.startswith("list") else f"{word}s"
        return f"list of {many}" + (f",{limits}" if limits else "")
    return f"{len(parts)} values: {', '.join(in_words(one) for one in parts)}"


def _limits(metadata: tuple[Any, ...]) -> list[str]:
    """Return what the annotations of a type allow, in words."""
    found: list[str] = []
    for one in metadata:
        if isinstance(one, Limits):
            # "number, a positive number" says it twice.
            found.append(one.text.removeprefix("a positive number") or "above 0")
        elif isinstance(one, FieldInfo):
            found += _limits(tuple(one.metadata))
        elif (text := _one_limit(one)) is not None:
            found.append(text)
    return found


def _one_limit(limit: Any) -> str | None:
    match limit:
        case annotated_types.Ge(ge=value):
            return f"at least {value}"
        case annotated_types.Gt(gt=value):
            return f"above {value}"
        case annotated_types.Le(le=value) if value < 10**9:
            return f"at most {value}"
        case annotated_types.Lt(lt=value) if value < 10**9:
            return f"below {value}"
    return None


def default_in_words(default: Any) -> str:
    """Return the default of a key: as TOML, or in words where a file can't say it."""
    if default is MISSING:
        return "required"
    if default is None or default == "" or default == ():
        return "–"
    if isinstance(default, bool | int | float | str | tuple):
        try:
            return f"`{in_toml(default)}`"
        except TypeError:
            return "see below"
    return "its defaults"


def in_toml(value: Any) -> str:
    """Return a value as TOML has it.

    >>> in_toml({"name": "noise", "size": 0.01})
    '{ name = "noise", size = 0.01 }'
    """
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return json.dumps(value, ensure_ascii=False)
        case list() | tuple():
            return "[" + ", ".join(map(in_toml, value)) + "]"
        case dict():
            pairs = [f"{_key(name)} = {in_toml(inner)}" for name, inner in value.items()]
            return "{ " + ", ".join(pairs) + " }"
    raise TypeError(f"TOML has no {type(value).__name__}")


def _key(name: str) -> str:
    return name if name.replace("-", "").replace("_", "").isalnum() else json.dumps(name)
