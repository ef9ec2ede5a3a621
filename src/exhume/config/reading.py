"""Reading an audit's TOML: every error is one line."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from exhume.config.audit import Config
from exhume.config.explaining import AT_THE_TOP, explained
from exhume.protocol.errors import InputError

FILE = "audit.toml"
"""What an audit's file is called in a folder of audits."""


def load(path: Path) -> Config:
    """Read an audit's TOML file, or all of a folder; paths in a file are relative to it."""
    if path.is_dir():
        return _load_all(path)
    return parse(_text(path), folder=path.parent, source=str(path))


def parse(text: str, *, folder: Path, source: str) -> Config:
    """Read an audit from TOML text. One setting may stand at the top level."""
    return from_tables(_tables(text, source), folder=folder, source=source)


def _load_all(folder: Path) -> Config:
    """Read every audit in a folder as one: each of its settings is named by where it stands."""
    files = sorted(folder.rglob(FILE))
    if not files:
        raise InputError(f"{folder} holds neither a recording nor an {FILE}: there is no audit")
    if files == [folder / FILE]:
        return load(files[0])
    settings, shared = list[dict[str, Any]](), list[Any]()
    for path in files:
        load(path)  # an error is one of this file
        tables = _completed(_in_british(_tables(_text(path), str(path))), path.parent)
        audit = tables.get("audit", {})
        place = str(path.parent.relative_to(folder))
        for setting in tables["setting"]:
            own = f"{place}: {setting['name']}" if "name" in setting else place
            given = "truth" in audit and "file" in setting["release"]
            truth = {"truth": audit["truth"]} if given else {}
            settings.append({**truth, **setting, "name": own})
        shared.append({key: value for key, value in audit.items() if key != "truth"})
        if isinstance(similar := shared[-1].get("similar"), Path):
            shared[-1]["similar"] = similar.resolve()
        if shared[-1] != shared[0]:
            raise InputError(
                f"{files[0]} and {path} differ in [audit]: audits of one folder share it, "
                "except truth; audit them one by one"
            )
    return from_tables({"setting": settings, "audit": shared[0]}, source=str(folder))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not an audit's file: it is not text in UTF-8") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None


def _tables(text: str, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise InputError(f"{source} is nested too deeply for an audit") from None
    except ValueError as error:
        raise InputError(f"{source} is not valid TOML: {error}") from None


def from_tables(tables: dict[str, Any], *, source: str, folder: Path = Path()) -> Config:
    """Read an audit from TOML tables."""
    try:
        tables = _completed(_in_british(tables), folder)
        return Config.model_validate(tables)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
    except RecursionError:
        raise InputError(f"{source} is nested too deeply for an audit") from None
    except ValidationError as error:
        raise InputError(f"{source}: {explained(error, tables)}") from None


def _completed(tables: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Gather a setting at the top level, turn arrays into tuples and anchor relative paths."""
    top = {key: tables.pop(key) for key in AT_THE_TOP if key in tables}
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
            _anchor(setting, "truth", folder)
            _anchor(setting.get("release"), "file", folder)
            _anchor(setting.get("release"), "before", folder)
            _anchor(setting.get("release"), "recording", folder)
            _anchor_named(setting.get("release"), "model", ".pt2", folder)
            _anchor_named(setting.get("release"), "estimator", ".skops", folder)
            _anchor(setting.get("knowledge"), "fixed_set", folder)
            _anchor(setting.get("knowledge"), "shadow_targets", folder)
            _anchor(setting.get("knowledge"), "initial", folder)
            _anchor(setting.get("knowledge"), "order", folder)
            _anchor(setting.get("knowledge"), "candidates", folder)
    _anchor(completed.get("audit"), "truth", folder)
    _anchor(completed.get("audit"), "similar", folder)
    return completed


_BRITISH = {
    "optimizer": "optimiser",
    "defenses": "defences",
    "defense": "defence",
    "initialization": "initialisation",
    "standardize": "standardise",
    "centered": "centred",
}
"""Keys in the other spelling, which are understood as well."""


def _in_british(value: Any) -> Any:
    if isinstance(value, dict):
        return {_BRITISH.get(key, key): _in_british(item) for key, item in value.items()}
    return [_in_british(item) for item in value] if isinstance(value, list) else value


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _frozen(item) for key, item in value.items()}
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


def _anchor(table: Any, key: str, folder: Path) -> None:
    if isinstance(table, dict) and isinstance(table.get(key), str):
        table[key] = folder / table[key]


def _anchor_named(table: Any, key: str, ending: str, folder: Path) -> None:
    """Anchor a value that is a file where it ends like one, and else a name."""
    value = table.get(key) if isinstance(table, dict) else None
    if isinstance(value, str) and value.endswith(ending):
        table[key] = str(folder / value)
