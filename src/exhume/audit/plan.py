"""A plan: settings × attacks × targets, divided into units that share work."""

from __future__ import annotations

import hashlib
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from exhume.audit.build_setting import build
from exhume.audit.load_data import load_data
from exhume.audit.setting import ThreatSetting
from exhume.config import Config, EstimatorReleaseTable, SettingTable
from exhume.protocol.attack import Attack
from exhume.protocol.errors import InputError
from exhume.runlog.outcome import KEY_VERSION, Trial, attack_settings, canonical
from exhume.runtime.fingerprint import fingerprint
from exhume.training.glm import GLM

CHUNK = 16
"""Targets per unit: enough to share work, few enough to lose little when interrupted."""
MANY_CHUNK = 512
"""The same where a fit's work is shared and a target costs milliseconds."""

_FILED = {"title", "author"}
"""What heads the report and has no say in its results."""

_MANY = 1000
"""From this many targets on, the records are counted before anything is planned."""


@dataclass(frozen=True)
class Unit:
    """Some targets of one setting under every attack: the unit of work of an executor."""

    setting: int
    targets: tuple[int, ...]


@dataclass(frozen=True)
class Deadline:
    """When settings whose duration is hard to tell begin no further target.

    ``until`` is a time of ``time.time``. The first release of each is attacked at any hour.
    """

    settings: tuple[int, ...]
    until: float

    def over(self, unit: Unit) -> bool:
        """Whether it is too late to begin a unit."""
        return unit.setting in self.settings and unit.targets[0] > 0 and time.time() > self.until


@dataclass(frozen=True)
class Plan:
    """Everything an audit will do. Plain data: it can be sent to another process.

    ``files`` are the content hashes of the files that the configuration names, and of code of the
    user's own; ``extra`` are additional attacks, which run on every setting. To fit a ``budget``,
    ``limits`` gives the number of first targets that are run per setting; their trials are those of
    the whole plan, so that the rest can be run later. (Smaller units may round differently.) Past
    the ``deadline`` no unit of its settings is begun; there a unit is one release.
    ``live`` are the settings themselves, one per table, where they were made in Python.
    """

    config: Config
    attacks: tuple[Attack, ...]
    files: tuple[str, ...] = ()
    extra: tuple[Attack, ...] = ()
    limits: tuple[int, ...] = ()
    budget: str = ""
    live: tuple[ThreatSetting, ...] = ()
    deadline: Deadline | None = None

    @property
    def identity(self) -> str:
        """The content hash of the plan: a run folder belongs to one plan."""
        text = f"{KEY_VERSION}{self.contents}{canonical(self.files)}"
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def contents(self) -> str:
        """Canonical JSON of the configuration and the attacks, with files by their contents."""
        attacks = [attack_settings(attack) for attack in self.attacks]
        config = self.config.model_dump(exclude={"audit": _FILED})
        return canonical({**self._by_content(config), "attacks": attacks})

    def _by_content(self, table: dict[str, Any]) -> Any:
        """Return a table with the content hash of each file: where a file is does not matter."""
        hashes = dict(zip(map(str, self.config.files()), self.files, strict=False))

        def plain(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: plain(item) for key, item in value.items()}
            if isinstance(value, tuple):
                return [plain(item) for item in value]
            # A model may be the file of a program, whose name is text.
            if isinstance(value, Path) or (isinstance(value, str) and value in hashes):
                return f"file:{hashes.get(str(value), value)}"
            return value

        return plain(table)

    @property
    def named_files(self) -> dict[str, str]:
        """The content hashes of the files that are read, by their names without folders."""
        return {
            path.name: digest for path, digest in zip(self.config.files(), self.files, strict=False)
        }

    def targets(self, index: int) -> int:
        """Return how many targets a setting has."""
        table = self.config.setting[index]
        if table.release.file is not None:
            return table.batch or 1
        return table.targets or self.config.audit.targets

    def planned(self, index: int) -> int:
        """Return how many of a setting's targets are run."""
        whole = self.targets(index)
        return min(self.limits[index], whole) if self.limits else whole

    def units(self) -> list[Unit]:
        """Divide the plan into units; finished work and the executor have no influence."""
        units = []
        for index in range(len(self.config.setting)):
            count, chunk = self.planned(index), self.chunk(index)
            for start in range(0, count, chunk):
                units.append(Unit(index, tuple(range(start, min(start + chunk, count)))))
        if self.deadline is None:
            return units
        # Whatever is left out at the end, every setting keeps the same share of its targets.
        return sorted(units, key=lambda one: one.targets[0] / self.planned(one.setting))

    def chunk(self, index: int) -> int:
        """Return how many targets of a setting make a unit, the last one aside."""
        batch = self.config.setting[index].batch or 1
        if self.live and isinstance(self.live[index].mechanism, GLM):
            return MANY_CHUNK
        alone = self.deadline is not None and index in self.deadline.settings
        return batch * (1 if alone else max(1, CHUNK // batch))

    def attacks_on(self, unit: Unit) -> tuple[Attack, ...]:
        """Return the attacks of a unit: those for its setting, and ``extra``."""
        from exhume.audit.attack_options import attacks_for

        wanted = attacks_for(self.config.setting[unit.setting], self.config.audit)
        return tuple(a for a in self.attacks if a in wanted or a in self.extra)

    def setting(self, index: int) -> ThreatSetting:
        """Build a setting; a process builds each only once."""
        return self.live[index] if self.live else _built(self.config, self.files, index)

    def keys(self, unit: Unit) -> frozenset[str]:
        """Return the keys of all trials of a unit."""
        attacks = self.attacks_on(unit)
        return frozenset(t.key for attack in attacks for t in self.trials(unit, attack))

    def require_same_files(self) -> None:
        """Refuse to work on files other than those of the plan."""
        if not self.live:
            _same_files(self.config, self.files)

    def trials(self, unit: Unit, attack: Attack) -> list[Trial]:
        """Return the trials of one attack in a unit."""
        table = self.config.setting[unit.setting]
        settings = canonical(
            {
                # The cost of a defence does not influence an attack's result.
                "setting": self._by_content(table.model_dump(exclude={"utility"})),
                "audit": self._by_content(
                    self.config.audit.model_dump(exclude={"attacks", *_FILED})
                ),
                "attack": attack_settings(attack),
            }
        )
        seed = self.config.audit.seed
        return [Trial(table.name, attack.name, t, seed, settings) for t in unit.targets]


def make_plan(config: Config, extra: Sequence[Attack] = ()) -> Plan:
    """Return a configuration's plan: its attacks (default: all), the baseline, and ``extra``."""
    from exhume.audit.attack_options import attacks_for
    from exhume.audit.membership import membership_tests

    for table in config.setting:
        # An unknown test or attack is refused before anything runs.
        membership_tests(table, config.audit)
        _require_enough_records(table, table.targets or config.audit.targets)
    wanted = [attack for table in config.setting for attack in attacks_for(table, config.audit)]
    named = sorted(dict.fromkeys(wanted), key=lambda attack: attack.baseline)
    attacks = (*named, *extra)
    return Plan(config, attacks, (*map(_digest, config.files()), *_code(config)), tuple(extra))


def live_plan(config: Config, live: Sequence[ThreatSetting]) -> Plan:
    """Return the plan of settings that were made in Python, one per table of ``config``.

    If their content has no fingerprint, a run of it cannot be resumed in a later process.
    """
    from exhume.audit.attack_options import attacks_for

    wanted = [attack for table in config.setting for attack in attacks_for(table, config.audit)]
    attacks = sorted(dict.fromkeys(wanted), key=lambda attack: attack.baseline)
    return Plan(config, tuple(attacks), tuple(map(_content, live)), live=tuple(live))


def _content(setting: ThreatSetting) -> str:
    try:
        return fingerprint(setting)
    except InputError:
        return uuid4().hex


def _code(config: Config) -> tuple[str, ...]:
    """Return the digests of the loops and networks of the user's own, which are imported here."""
    from exhume.models.own_code import code_named

    return tuple(code_named(source).digest for source in _sources(config))


def _sources(config: Config) -> list[str]:
    return [source for table in config.setting for source in table.release.code]


def _require_enough_records(table: SettingTable, targets: int) -> None:
    """Refuse more targets than there are records before a plan is made of them."""
    if table.data is None or targets <= _MANY:
        return
    mixed = isinstance(table.release, EstimatorReleaseTable)
    found = len(load_data(table.data, mixed=mixed).records)
    if targets > found:
        raise InputError(
            f"setting {table.name!r}: {targets:,} targets, but the data has only {found:,} records"
        )


def _digest(path: Path) -> str:
    """A file's content hash: a model saved again under the same name is another model."""
    try:
        if not path.is_file():
            # A device may have no end.
            return "unreadable"
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        # The reader of the file reports its errors.
        return "unreadable"


@lru_cache(maxsize=4)
def _same_files(config: Config, files: tuple[str, ...]) -> None:
    if _code(config) != files[len(config.files()) :]:
        raise InputError(
            f"the code of {', '.join(_sources(config))} on {platform.node()} is not what the "
            "audit was started with; every node must see the same files at the same places"
        )
    for path, digest in zip(config.files(), files, strict=False):
        if _digest(path) != digest:
            raise InputError(
                f"{path} on {platform.node()} is not the file that the audit was started with; "
                "every node must see the same files at the same places"
            )


@lru_cache(maxsize=4)
def _built(config: Config, files: tuple[str, ...], index: int) -> ThreatSetting:
    # The files are part of the key: cached results of one must not be used for its successor.
    return build(config, index)
