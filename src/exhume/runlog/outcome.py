"""The outcome of a trial, as plain data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np

from exhume.protocol.attack import Attack
from exhume.protocol.errors import InputError
from exhume.protocol.reconstruction import Stat, Status

KEY_VERSION = 1
"""Part of every trial's key; it must not change, or finished trials would be repeated."""


@dataclass(frozen=True)
class Trial:
    """One attack on the release of one target, as a specification."""

    setting: str
    attack: str
    target: int
    seed: int
    settings: str
    """Canonical JSON of the setting's table and the attack's fields, which determine the result."""

    @property
    def key(self) -> str:
        """The content hash of the specification: the same trial never runs twice."""
        text = f"{KEY_VERSION}\n{self.settings}\n{self.target}\n{self.seed}"
        return hashlib.sha256(text.encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Outcome:
    """The outcome of one trial.

    ``distance`` is the success metric's error of the attack's first candidate, ``threshold`` the
    distance it had to reach (None if the truth is not known), ``scores`` every metric by name (None
    without a candidate). ``artefact`` names the file with the candidates and ``row`` its entry
    there. ``seconds`` is the only field that differs between two runs.
    """

    trial: Trial
    status: str
    message: str
    success: bool | None
    distance: float | None
    threshold: float | None
    scores: Mapping[str, float | None] = field(default_factory=dict)
    label_correct: bool | None = None
    confidence: float | None = None
    error_estimate: float | None = None
    stats: Mapping[str, Stat] = field(default_factory=dict)
    artefact: str = ""
    row: int = -1
    seconds: float = 0.0
    baseline: bool = False

    @property
    def ran(self) -> bool:
        """Whether the attack really ran in this trial."""
        return Status[self.status].ran


def canonical(value: Any) -> str:
    """Return JSON that depends on content alone: sorted keys, arrays by their hash."""
    return json.dumps(_plain(value), sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def attack_settings(attack: Attack) -> dict[str, Any]:
    """Return an attack's class and fields, defaults included."""
    settings = _plain(attack)
    if not isinstance(settings, dict):
        raise InputError(
            f"{type(attack).__name__} must be a frozen dataclass, because it is recorded"
        )
    kind = f"{type(attack).__module__}:{type(attack).__qualname__}"
    return {"name": attack.name, "class": kind, **settings}


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, np.ndarray):
        return "sha256:" + hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    return str(value)
