"""Reading an audit's TOML: one line for whatever is wrong with it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from exhume.config.audit import Config
from exhume.errors import InputError


def load(path: Path) -> Config:
    """Read an audit's TOML file; paths in it are relative to it."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} can't be read: {error}") from None
    return parse(text, folder=path.parent, source=str(path))


def parse(text: str, *, folder: Path, source: str) -> Config:
    """Read an audit from TOML text. One setting may stand at the top level."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{source} is not valid TOML: {error}") from None
    return from_tables(tables, folder=folder, source=source)


def from_tables(tables: dict[str, Any], *, source: str, folder: Path = Path()) -> Config:
    """Read an audit from tables as TOML has them."""
    try:
        return Config.model_validate(_completed(tables, folder))
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
    except ValidationError as error:
        raise InputError(f"{source}: {_explained(error)}") from None


def _completed(tables: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Gather a setting at the top level, turn arrays into tuples and anchor relative paths."""
    own = ("data", "release", "knowledge", "options", "grid", "start")
    top = {key: tables.pop(key) for key in own if key in tables}
    if top and "setting" in tables:
        raise InputError("give [[setting]] tables or one setting at the top level, not both")
    if "setting" not in tables:
        tables["setting"] = [top]
    if not isinstance(tables["setting"], list):
        raise InputError("'setting' must be a list of tables: write [[setting]] above each")
    completed: dict[str, Any] = _frozen(tables)
    for setting in completed["setting"]:
        if isinstance(setting, dict):
            _anchor(setting.get("data"), "file", folder)
            _anchor(setting.get("release"), "file", folder)
            _anchor(setting.get("knowledge"), "fixed_set", folder)
            _anchor(setting.get("knowledge"), "shadow_targets", folder)
            _anchor(setting.get("knowledge"), "initial", folder)
    _anchor(completed.get("audit"), "truth", folder)
    return completed


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _frozen(item) for key, item in value.items()}
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


def _anchor(table: Any, key: str, folder: Path) -> None:
    if isinstance(table, dict) and isinstance(table.get(key), str):
        table[key] = folder / table[key]


_TAGS = ("linear", "network", "columns", "half")
"""Where pydantic says which of several kinds it took a value for; they are no key of the file."""


def _explained(error: ValidationError) -> str:
    """One line: the first thing that is wrong, which key, which value, and how many more."""
    errors = error.errors()
    first = errors[0]
    keys = [str(part) for part in first["loc"] if part not in _TAGS]
    where = ".".join(keys).removeprefix("setting.0.") or "the file"
    if first["type"] == "extra_forbidden":
        text = f"unknown key {where!r}"
    elif first["type"] == "missing":
        text = f"{where!r} is missing"
    else:
        message = first["msg"].removeprefix("Value error, ")
        value = first["input"]
        shown = "" if isinstance(value, dict) else f", got {value!r}"
        text = f"{where}: {message[:1].lower()}{message[1:]}{shown}"
    more = len(errors) - 1
    return text + (f" (and {more} more)" if more else "")
