"""A plan: settings × attacks × targets, cut into units of work that share what they can."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from exhume.attacks.base import Attack
from exhume.audit.building import build
from exhume.audit.record import SCHEMA_VERSION, Trial, attack_settings, canonical
from exhume.audit.setting import Setting
from exhume.config import Config
from exhume.errors import InputError

CHUNK = 16
"""Targets a unit: enough to share work, few enough to lose little when interrupted."""


@dataclass(frozen=True)
class Unit:
    """Some targets of one setting, under every attack: the piece of work an executor hands out."""

    setting: int
    targets: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """Everything an audit will do. Plain data: it can be sent to another process.

    ``files`` are the content hashes of the files that the configuration names; ``extra`` are
    attacks beside those that it names, which run on every setting. To fit a ``budget``, ``limits``
    says how many targets of each setting are run, the first ones; their trials are those of the
    whole plan, so that the rest can be run later. (Smaller units may round differently.)
    """

    config: Config
    attacks: tuple[Attack, ...]
    files: tuple[str, ...] = ()
    extra: tuple[Attack, ...] = ()
    limits: tuple[int, ...] = ()
    budget: str = ""

    @property
    def identity(self) -> str:
        """The content hash of the plan: a run folder belongs to one plan."""
        config = self.config.model_dump(mode="json")
        text = canonical([config, self.files, *map(attack_settings, self.attacks)])
        return hashlib.sha256(f"{SCHEMA_VERSION}{text}".encode()).hexdigest()

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
        """Cut the plan up; the cuts don't depend on what is done already, nor on who does it."""
        units = []
        for index, table in enumerate(self.config.setting):
            count, batch = self.planned(index), table.batch or 1
            chunk = batch * max(1, CHUNK // batch)
            for start in range(0, count, chunk):
                units.append(Unit(index, tuple(range(start, min(start + chunk, count)))))
        return units

    def attacks_on(self, unit: Unit) -> tuple[Attack, ...]:
        """Return the attacks of a unit: those made or asked for in its setting, and ``extra``."""
        from exhume.audit.names import attacks_for

        wanted = attacks_for(self.config.setting[unit.setting], self.config.audit)
        return tuple(a for a in self.attacks if a in wanted or a in self.extra)

    def setting(self, index: int) -> Setting:
        """Build a setting; a process builds each only once."""
        return _built(self.config, self.files, index)

    def keys(self, unit: Unit) -> frozenset[str]:
        """Return the keys of all trials of a unit."""
        attacks = self.attacks_on(unit)
        return frozenset(t.key for attack in attacks for t in self.trials(unit, attack))

    def require_same_files(self) -> None:
        """Refuse to work on files that are not those that the plan was made for."""
        _same_files(self.config, self.files)

    def trials(self, unit: Unit, attack: Attack) -> list[Trial]:
        """Return the trials of one attack in a unit."""
        table = self.config.setting[unit.setting]
        settings = canonical(
            {
                # What a defence costs has no say in how far an attack comes.
                "setting": table.model_dump(mode="json", exclude={"utility"}),
                "audit": self.config.audit.model_dump(mode="json", exclude={"attacks"}),
                "attack": attack_settings(attack),
            }
        )
        seed = self.config.audit.seed
        return [Trial(table.name, attack.name, t, seed, settings) for t in unit.targets]


def make_plan(config: Config, extra: Sequence[Attack] = ()) -> Plan:
    """Return a configuration's plan: its attacks (default: all), the baseline, and ``extra``."""
    from exhume.audit.names import attacks_for

    wanted = [attack for table in config.setting for attack in attacks_for(table, config.audit)]
    named = sorted(dict.fromkeys(wanted), key=lambda attack: attack.baseline)
    attacks = (*named, *extra)
    return Plan(config, attacks, tuple(_digest(path) for path in config.files()), tuple(extra))


def _digest(path: Path) -> str:
    """A file's content hash: a model saved again under the same name is another model."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        # Whoever reads the file says what is wrong with it.
        return "unreadable"


@lru_cache(maxsize=4)
def _same_files(config: Config, files: tuple[str, ...]) -> None:
    for path, digest in zip(config.files(), files, strict=True):
        if _digest(path) != digest:
            raise InputError(
                f"{path} on {platform.node()} is not the file that the audit was started with; "
                "every node must see the same files at the same places"
            )


@lru_cache(maxsize=4)
def _built(config: Config, files: tuple[str, ...], index: int) -> Setting:
    # The files are part of the key: what is remembered of one must not answer for its successor.
    return build(config, index)
