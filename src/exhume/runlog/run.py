"""The content of a run folder, without its arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from exhume.runlog.outcome import Outcome
from exhume.runlog.setting import Setting


@dataclass(frozen=True)
class Header:
    """What was asked for, and by what it was done.

    ``config`` is the audit's configuration, as JSON to be read by people. ``undefended`` describes
    each setting, by name, without its name and its defences: settings with the same text differ in
    nothing else. ``expected`` counts the trials that were planned. ``limits`` has the number of
    planned targets by setting, if they were reduced to fit a ``budget``. ``title`` and ``author``
    are what the configuration says of itself, ``started`` is the date of the first run, and
    ``files`` has the SHA-256 of every model and data file by name.
    """

    config: str = "{}"
    undefended: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    exhume_version: str = ""
    command: str = ""
    seed: int = 0
    closeness: float = 1.0
    expected: int = 0
    budget: str = ""
    limits: Mapping[str, int] = field(default_factory=dict)
    title: str = ""
    author: str = ""
    started: str = ""
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """A run, finished or not.

    Settings are in the plan's order, outcomes in that of settings, attacks and targets.
    """

    header: Header
    settings: tuple[Setting, ...]
    outcomes: tuple[Outcome, ...]

    def setting(self, name: str) -> Setting:
        """Return a setting by its name."""
        return next(one for one in self.settings if one.name == name)

    def of(self, setting: str) -> tuple[Outcome, ...]:
        """Return the outcomes of a setting."""
        return tuple(one for one in self.outcomes if one.trial.setting == setting)
