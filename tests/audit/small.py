"""Small audits, attacks that misbehave, and run folders read without the code under test."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from safetensors.numpy import load_file
from tests.patience import PATIENCE_SECONDS

from exhume.attacks import Attack
from exhume.audit import Plan, make_plan
from exhume.config import Config, parse
from exhume.data import load
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.release import Release

PLAIN = """
[[setting]]
name = "plain"
data = { name = "breast-cancer", fixed_set = 60, units = "fixed-set" }
release = { model = "logistic", penalty = { strength = 1.0 } }
"""

SCALED = """
[[setting]]
name = "scaled"
data = { name = "breast-cancer", fixed_set = 60 }
release = { model = "logistic", penalty = { strength = 1.0 }, standardise = true }
"""

NOISY = """
[[setting]]
name = "noisy"
data = { name = "breast-cancer", fixed_set = 60, units = "fixed-set" }
[setting.release]
model = "logistic"
penalty = { strength = 1.0, intercept = true }
defences = [{ name = "output-perturbation", noise_multiplier = 1.0, norm_bound = 8.0 }]
"""


def audit(targets: int, *, seed: int = 0, **others: str) -> str:
    """An [audit] table; values of ``others`` are TOML."""
    lines = [f"targets = {targets}", f"seed = {seed}"]
    return "\n".join(["[audit]", *lines, *(f"{key} = {value}" for key, value in others.items())])


def config(*texts: str, folder: Path = Path()) -> Config:
    """The configuration that these pieces of TOML make up."""
    return parse("\n".join(texts), folder=folder, source="test")


def plan(*texts: str, extra: tuple[Attack, ...] = ()) -> Plan:
    """Their plan."""
    return make_plan(config(*texts), extra=extra)


def from_file(text: str) -> str:
    """The same audits with their records in a file: processes need no scikit-learn to read it."""
    return text.replace('name = "breast-cancer"', f'file = "{_breast_cancer()}"')


@cache
def _breast_cancer() -> Path:
    folder = tempfile.TemporaryDirectory()
    _KEPT.append(folder)
    records = load("breast-cancer").train
    path = Path(folder.name) / "breast-cancer.npz"
    np.savez(path, x=records.x, y=records.labels)
    return path


_KEPT: list[tempfile.TemporaryDirectory[str]] = []
"""Folders that are removed when the process ends."""


# Run folders, read with nothing but SQLite, JSON and safetensors.


def rows(folder: Path) -> dict[str, dict[str, Any]]:
    """Every record as the database has it, by its key."""
    path = folder / "records.sqlite"
    if not path.is_file():
        return {}
    with closing(sqlite3.connect(path, timeout=30)) as database:
        database.row_factory = sqlite3.Row
        try:
            found = database.execute("SELECT * FROM records").fetchall()
        except sqlite3.OperationalError:
            # The tables are made one moment after the file.
            return {}
    assert len({row["key"] for row in found}) == len(found)
    return {row["key"]: dict(row) for row in found}


def outcome(folder: Path) -> dict[str, dict[str, Any]]:
    """Every record, without the one column that may differ between two runs."""
    return {
        key: {name: value for name, value in row.items() if name != "seconds"}
        for key, row in rows(folder).items()
    }


def seconds(folder: Path) -> dict[str, float]:
    """How long every trial took, by its key."""
    return {key: row["seconds"] for key, row in rows(folder).items()}


def wait_for_more(out: Path, than: int, process: subprocess.Popen) -> None:
    """Wait until a run folder that ``process`` fills holds more than so many records.

    Returns too where the process ended in between: what it returned tells the caller.
    """
    wait_for(lambda: len(rows(out)) > than or process.poll() is not None)


def wait_for(happened: Callable[[], bool]) -> None:
    """Wait until something has happened; the deadline is for what never will."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < deadline, "it makes no progress"
        time.sleep(0.02)


def assert_workers_left(group: int) -> None:
    """Assert that no process of a group is left: workers must not wait for a dead parent."""
    wait_for(lambda: not _running(group))


def _running(group: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except (OSError, ValueError):
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            found.append(int(entry.name))
    return found


def marks(folder: Path) -> list[int]:
    """The processes that ``Marking`` worked in, once for each release."""
    return [int(path.name.partition("-")[0]) for path in folder.iterdir()]


def artefacts(folder: Path) -> dict[str, dict[str, tuple[str, bytes]]]:
    """Every kept array, as its type and bytes, by file and name."""
    files = sorted((folder / "artefacts").glob("*.safetensors"))
    return {
        path.name: {n: (str(a.dtype), a.tobytes()) for n, a in load_file(path).items()}
        for path in files
    }


def expected_keys(of: Plan) -> set[str]:
    """The key of every trial that the plan asks for."""
    return {
        trial.key
        for unit in of.units()
        for attack in of.attacks
        for trial in of.trials(unit, attack)
    }


def strict_json(path: Path) -> Any:
    """JSON as the standard has it: no NaN, no Infinity."""

    def refuse(word: str) -> None:
        raise ValueError(f"{path} holds {word}, which no other JSON parser reads")

    return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


# Attacks for tests. They live in a module of their own so that other processes can import them.


@dataclass(frozen=True)
class Raising(Attack):
    """Stops with an error, always."""

    name: ClassVar[str] = "raising"

    def accepts(self, release: Release, knowledge: Knowledge) -> str | None:
        return None

    def _reconstruct(
        self, release: Release, knowledge: Knowledge, rng: np.random.Generator
    ) -> Reconstruction:
        raise ZeroDivisionError("on purpose")


@dataclass(frozen=True)
class Marking(Attack):
    """Leaves a file in ``folder`` for every release that it is given, named by the process's id.

    Then it waits for the file ``until``, where one is named.
    """

    folder: str
    until: str = ""
    name: ClassVar[str] = "marking"

    def accepts(self, release: Release, knowledge: Knowledge) -> str | None:
        return None

    def _reconstruct(
        self, release: Release, knowledge: Knowledge, rng: np.random.Generator
    ) -> Reconstruction:
        name = f"{os.getpid()}-{rng.integers(2**62):x}-{time.time_ns():x}"
        (Path(self.folder) / name).touch()
        wait_for(lambda: not self.until or Path(self.until).exists())
        return Reconstruction(np.empty((0, *knowledge.record_shape)), Status.NO_INFORMATION)


@dataclass(frozen=True)
class Holding(Attack):
    """Answers the first release that any process is given, and holds all others.

    Each leaves a file in ``folder`` when it begins. A file ``released`` there lets all of them go.
    """

    folder: str
    name: ClassVar[str] = "holding"

    def accepts(self, release: Release, knowledge: Knowledge) -> str | None:
        return None

    def _reconstruct(
        self, release: Release, knowledge: Knowledge, rng: np.random.Generator
    ) -> Reconstruction:
        (Path(self.folder) / f"{os.getpid()}-{time.time_ns():x}").touch()
        try:
            (Path(self.folder) / "answered").touch(exist_ok=False)
        except FileExistsError:
            wait_for((Path(self.folder) / "released").exists)
        return Reconstruction(np.empty((0, *knowledge.record_shape)), Status.NO_INFORMATION)


@dataclass(frozen=True)
class Dying(Attack):
    """Ends its own process as kill -9 does, until ``folder`` has ``times`` files: one a death."""

    folder: str
    times: int
    name: ClassVar[str] = "dying"

    def accepts(self, release: Release, knowledge: Knowledge) -> str | None:
        return None

    def _reconstruct(
        self, release: Release, knowledge: Knowledge, rng: np.random.Generator
    ) -> Reconstruction:
        for death in range(self.times):
            with suppress(FileExistsError):
                (Path(self.folder) / str(death)).touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
        return Reconstruction(np.empty((0, *knowledge.record_shape)), Status.NO_INFORMATION)


@dataclass(frozen=True)
class Drawing(Attack):
    """Returns what its random stream says, with an error estimate of one's choice."""

    estimate: float = 1.0
    name: ClassVar[str] = "drawing"

    def accepts(self, release: Release, knowledge: Knowledge) -> str | None:
        return None

    def _reconstruct(
        self, release: Release, knowledge: Knowledge, rng: np.random.Generator
    ) -> Reconstruction:
        return Reconstruction(
            rng.standard_normal((1, *knowledge.record_shape)),
            Status.APPROXIMATE,
            error_estimate=np.array([self.estimate]),
        )


@dataclass(frozen=True)
class Learning(Attack):
    """Needs ``once`` seconds of ``clock`` when it is first used, and ``each`` for every release."""

    once: float
    each: float
    name: ClassVar[str] = "learning"
    clock: ClassVar[list[float]] = [0.0]

    def accepts(self, release: Release, knowledge: Knowledge) -> str | None:
        return None

    def _reconstruct(
        self, release: Release, knowledge: Knowledge, rng: np.random.Generator
    ) -> Reconstruction:
        self.clock.append(self.clock[-1] + self.each + (self.once if len(self.clock) == 1 else 0.0))
        return Reconstruction(np.empty((0, *knowledge.record_shape)), Status.NO_INFORMATION)


def divided(common: int, task: int) -> float:
    """Work for an executor."""
    return common / task


def same(one: Mapping[str, object], other: Mapping[str, object]) -> None:
    """Assert that two mappings agree, saying which keys differ and not more."""
    assert set(one) == set(other)
    wrong = [key for key in one if one[key] != other[key]]
    assert not wrong, [(one[key], other[key]) for key in wrong[:2]]
