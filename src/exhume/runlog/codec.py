"""Conversion between the typed log and JSON: only here are a run's data plain dictionaries.

Dataclasses become tables with a key per field, tuples lists. A setting is flat in JSON, with the
keys that ``summary.json`` has always had. Null in place of a number is read as NaN. A missing key,
as in a run of an earlier version, gives the field's default, or the empty value of its type.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from types import UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

import numpy as np

from exhume.protocol.reconstruction import Status
from exhume.runlog.outcome import Outcome, Trial
from exhume.runlog.run import Header
from exhume.runlog.setting import Setting

T = TypeVar("T")

_FLAT: Mapping[str, Mapping[str, str]] = {
    "data": {
        name: name
        for name in (
            *("fixed_set", "shadow_targets", "targets"),
            *("record_shape", "value_range", "unit", "candidates", "one_training", "columns"),
            *("schema", "left_out", "rows"),
        )
    },
    "nearest": {
        "mean": "nearest_mean",
        "mean_square": "nearest_mse",
        "levels": "percentile_levels",
        "means": "percentile_means",
        "mean_squares": "percentile_mse",
    },
    "ceiling": {
        "event": "event",
        "private": "private",
        "points": "bound",
        "at": "bound_at",
        "method": "bound_method",
        "binds": "bound_binds",
        "note": "bound_note",
        "prior_samples": "prior_samples",
        "theorem_2": "theorem_2",
        "over_kappa": "bound_over_kappa",
        "epsilon": "epsilon",
        "delta": "delta",
    },
    "floor": {"value": "floor", "binds": "floor_binds", "note": "floor_note"},
    "model": {
        "name": "utility_name",
        "value": "utility",
        "training_value": "training_utility",
        "loss_auc": "loss_auc",
        "chance": "chance",
    },
    "membership": {
        "text": "membership",
        "test": "membership_test",
        "advantage": "membership_advantage",
        "auc": "membership_auc",
    },
}
"""The fields of a setting's nested tables, and their keys in JSON."""
_WHERE_MEASURED = (
    *("trainings", "authenticity", "canaries", "candidates", "one_training", "columns"),
    *("schema", "left_out", "rows"),
    *("bound_over_kappa", "epsilon", "delta", "chance"),
)
"""Keys of a setting that are omitted if empty."""
_AMONG_CANDIDATES = ("candidates", "empirical_epsilon")
"""Keys of a bracket that are left out where the adversary has no candidates."""


def encoded(value: Any) -> Any:
    """Return a value of the log as JSON-able data."""
    if isinstance(value, Setting):
        return _flat(value)
    if is_dataclass(value) and not isinstance(value, type):
        pairs = {field.name: getattr(value, field.name) for field in fields(value)}
        return {n: encoded(v) for n, v in pairs.items() if v or n not in _AMONG_CANDIDATES}
    if isinstance(value, Mapping):
        return {str(key): encoded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encoded(item) for item in value]
    return value


def finite(plain: Any) -> Any:
    """Return plain data with null for NaN and infinity, which JSON does not have."""
    if isinstance(plain, dict):
        return {key: finite(item) for key, item in plain.items()}
    if isinstance(plain, list):
        return [finite(item) for item in plain]
    return None if isinstance(plain, float) and not math.isfinite(plain) else plain


def decoded(kind: type[T], plain: Any) -> T:
    """Return JSON data as a value of a type of the log; TypeError if it does not fit.

    >>> from exhume.runlog.setting import BoundPoint
    >>> decoded(BoundPoint, {"closeness": 1.0, "kappa": 0.1, "gamma": None})
    BoundPoint(closeness=1.0, kappa=0.1, gamma=nan)
    """
    return cast(T, _value(kind, plain))


def _flat(setting: Setting) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in fields(setting):
        value = getattr(setting, field.name)
        if field.name in _FLAT:
            pairs = {key: getattr(value, n) for n, key in _FLAT[field.name].items()}
            found |= {k: encoded(v) for k, v in pairs.items() if v or k not in _WHERE_MEASURED}
        elif value or field.name not in _WHERE_MEASURED:
            found[field.name] = encoded(value)
    return found


def _nested(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return a setting's flat data with its nested tables."""
    tables = {
        table: {name: plain[key] for name, key in keys.items() if key in plain}
        for table, keys in _FLAT.items()
    }
    return {**plain, **tables}


def _value(kind: Any, plain: Any) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is UnionType:
        (one,) = (a for a in arguments if a is not type(None))
        return None if plain is None else _value(one, plain)
    if is_dataclass(kind):
        return _table(kind, plain)
    if origin is tuple:
        several = arguments[-1] is Ellipsis
        kinds = arguments[:1] * len(plain) if several else arguments
        return tuple(_value(k, item) for k, item in zip(kinds, plain, strict=True))
    if origin is not None:
        return {str(key): _value(arguments[1], item) for key, item in plain.items()}
    if kind is float and plain is None:
        return math.nan
    if not isinstance(plain, (int, float) if kind is float else kind):
        raise TypeError(f"{plain!r} stands where a {kind.__name__} must")
    return plain


def _table(kind: Any, plain: Any) -> Any:
    if not isinstance(plain, Mapping):
        raise TypeError(f"{plain!r} stands where a table must")
    if kind is Setting:
        plain = _nested(plain)
    kinds = _kinds(kind)
    known = {name: _value(kinds[name], plain[name]) for name in kinds if name in plain}
    missing = {f.name: _empty(kinds[f.name]) for f in fields(kind) if _needed(f, known)}
    return kind(**known, **missing)


def _needed(field: Any, known: Mapping[str, Any]) -> bool:
    given = field.default is not MISSING or field.default_factory is not MISSING
    return field.name not in known and not given


def _empty(kind: Any) -> Any:
    if get_origin(kind) is UnionType:
        return None
    if kind is float:
        return math.nan
    return {} if get_origin(kind) not in (tuple, None) else (get_origin(kind) or kind)()


@lru_cache(maxsize=64)
def _kinds(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


_OF_THE_DEFENCE = ("name", "title", "targets", "group", "defence")
"""Keys of a setting's table that differ between settings that differ in their defences alone."""


def header_of(notes: Mapping[str, str]) -> Header:
    """Return the header from what a run folder notes by name."""
    config, versions, planned, files = (
        json.loads(notes.get(name, "{}")) for name in ("config", "versions", "planned", "files")
    )
    audit, tables = config.get("audit", {}), config.get("setting", ())
    names = [table["name"] for table in tables]
    return Header(
        config=json.dumps(config, indent=2, ensure_ascii=False, sort_keys=True),
        undefended={table["name"]: _without_defences(table) for table in tables},
        versions=_value(dict[str, str], versions),
        exhume_version=notes.get("exhume_version", ""),
        command=notes.get("command", ""),
        seed=int(audit.get("seed", 0)),
        closeness=float(audit.get("closeness", 1.0)),
        expected=int(notes.get("expected_trials", 0)),
        budget=_value(str, planned.get("budget", "")),
        limits=dict(zip(names, _value(tuple[int, ...], planned.get("targets", ())), strict=False)),
        title=_value(str, audit.get("title", "")),
        author=_value(str, audit.get("author", "")),
        started=notes.get("started", ""),
        files=_value(dict[str, str], files),
    )


def _without_defences(table: Mapping[str, Any]) -> str:
    kept = {key: value for key, value in table.items() if key not in _OF_THE_DEFENCE}
    release = kept.get("release")
    if isinstance(release, Mapping):
        kept["release"] = {key: v for key, v in release.items() if key != "defences"}
    return json.dumps(kept, sort_keys=True)


COLUMNS = (
    *("key", "setting", "attack", "target", "seed", "settings", "versions", "status", "message"),
    *("success", "distance", "threshold", "scores", "label_correct", "confidence"),
    *("error_estimate", "stats", "artefact", "row", "seconds", "baseline"),
)
"""The columns of the store's table of outcomes."""


def row_of(outcome: Outcome, versions: Mapping[str, str]) -> tuple[Any, ...]:
    """Return an outcome as a row of the store's table, in the order of ``COLUMNS``."""
    trial = outcome.trial
    return (
        trial.key,
        trial.setting,
        trial.attack,
        trial.target,
        trial.seed,
        trial.settings,
        json.dumps(versions, sort_keys=True),
        outcome.status,
        outcome.message,
        outcome.success,
        outcome.distance,
        outcome.threshold,
        json.dumps(outcome.scores, sort_keys=True),
        outcome.label_correct,
        outcome.confidence,
        outcome.error_estimate,
        json.dumps(outcome.stats, sort_keys=True, default=_number),
        outcome.artefact,
        outcome.row,
        outcome.seconds,
        outcome.baseline,
    )


def _number(value: Any) -> Any:
    """Convert NumPy's numbers, which are easily mistaken for Python's."""
    return value.item() if isinstance(value, np.generic) else str(value)


def _checked(name: str, value: Any) -> Any:
    """Return a value of an outcome's field; TypeError if it is of another type."""
    return _value(_kinds(Outcome)[name], value)


def _record(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} stands where a table must")
    return value


def outcome_of(row: tuple[Any, ...]) -> Outcome:
    """Return a row of the store's table as an outcome; ValueError if it is another trial's."""

    def flag(value: int | None) -> bool | None:
        return None if value is None else bool(value)

    trial = Trial(row[1], row[2], row[3], row[4], row[5])
    if trial.key != row[0]:
        raise ValueError(f"the record of target {trial.target} is not what was written")
    return Outcome(
        trial,
        status=Status[row[7]].name,
        message=_checked("message", row[8]),
        success=flag(row[9]),
        distance=_checked("distance", row[10]),
        threshold=_checked("threshold", row[11]),
        scores=_checked("scores", json.loads(row[12])),
        label_correct=flag(row[13]),
        confidence=_checked("confidence", row[14]),
        error_estimate=_checked("error_estimate", row[15]),
        stats=_record(json.loads(row[16])),
        artefact=_checked("artefact", row[17]),
        row=_checked("row", row[18]),
        seconds=_checked("seconds", row[19]),
        baseline=bool(row[20]),
    )
