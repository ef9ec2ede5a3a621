"""The run folder: records in SQLite, arrays in safetensors, owner-only, crash-proof."""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from exhume.data.array_files import read_arrays, write_arrays
from exhume.protocol.arrays import Array
from exhume.protocol.errors import InputError, StoreError
from exhume.runlog.authenticity import Authenticity
from exhume.runlog.codec import COLUMNS, decoded, encoded, header_of, outcome_of, row_of
from exhume.runlog.outcome import Outcome
from exhume.runlog.run import Header, Run
from exhume.runlog.setting import Setting, VictimTraining
from exhume.runtime.durable import explained, make_folder

SCHEMA_VERSION = 2
_OLDER = ("1",)
"""Older schemas that can be read: 1 stored trainings and authenticity in a setting's facts."""
_DATABASE = "records.sqlite"
_UNREADABLE = (sqlite3.Error, UnicodeDecodeError)
_TABLES = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, facts TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS trainings (
  setting TEXT NOT NULL, seed INTEGER NOT NULL, facts TEXT NOT NULL, PRIMARY KEY (setting, seed)
);
CREATE TABLE IF NOT EXISTS authenticity (setting TEXT PRIMARY KEY, facts TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS records (
  key TEXT PRIMARY KEY, setting TEXT NOT NULL, attack TEXT NOT NULL, target INTEGER NOT NULL,
  seed INTEGER NOT NULL, settings TEXT NOT NULL, versions TEXT NOT NULL, status TEXT NOT NULL,
  message TEXT NOT NULL, success INTEGER, distance REAL, threshold REAL, scores TEXT NOT NULL,
  label_correct INTEGER, confidence REAL, error_estimate REAL, stats TEXT NOT NULL,
  artefact TEXT NOT NULL, row INTEGER NOT NULL, seconds REAL NOT NULL, baseline INTEGER NOT NULL
);
"""


class Store:
    """An open run folder. One process writes; a second one is refused."""

    def __init__(self, folder: Path, *, database: sqlite3.Connection, lock: IO[str] | None) -> None:
        self.folder = folder
        self._database = database
        self._lock = lock

    @classmethod
    def create(cls, folder: Path) -> Store:
        """Open ``folder`` for writing; create it if needed."""
        _require_ours(folder)
        for part in (folder, folder / "artefacts"):
            make_folder(part)
        lock = _locked(folder)
        database = _connected(folder / _DATABASE)
        try:
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("PRAGMA synchronous=FULL")
            database.executescript(_TABLES)
        except _UNREADABLE as error:
            raise _store_error(folder, error) from None
        for file in folder.glob(f"{_DATABASE}*"):
            file.chmod(0o600)
        # Leftovers of a killed process: nobody else writes here while the lock is held.
        for leftover in folder.rglob(".tmp-*"):
            leftover.unlink(missing_ok=True)
        store = cls(folder, database=database, lock=lock)
        if store.meta("schema_version") is None:
            store.set_meta("schema_version", str(SCHEMA_VERSION))
        store._require_version(str(SCHEMA_VERSION))
        return store

    @classmethod
    def open(cls, folder: Path) -> Store:
        """Open an existing run folder for reading."""
        if not (folder / _DATABASE).is_file():
            raise InputError(f"{folder} is not a run folder: it has no {_DATABASE}")
        store = cls(folder, database=_connected_to_read(folder / _DATABASE), lock=None)
        store._require_version(*_OLDER, str(SCHEMA_VERSION))
        return store

    def close(self) -> None:
        """Close the database and release the folder."""
        self._database.close()
        if self._lock is not None:
            self._lock.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def meta(self, name: str) -> str | None:
        """Return the run's entry under ``name``."""
        rows = self._read("SELECT value FROM meta WHERE name = ?", name)
        return str(rows[0][0]) if rows else None

    def set_meta(self, name: str, value: str) -> None:
        """Store an entry about the run."""
        self._write([("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))])

    def run(self) -> Run:
        """Return the content of the folder, without arrays."""
        return Run(self.header(), self.settings(), self.outcomes())

    def header(self) -> Header:
        """Return the request of the run, and the versions that ran it."""
        with self._damage_named():
            return header_of(dict(self._read("SELECT name, value FROM meta")))

    def settings(self) -> tuple[Setting, ...]:
        """Return what was measured of each setting, in the order they were added."""
        rows = self._read("SELECT name, facts FROM settings ORDER BY rowid")
        with self._damage_named():
            found = {name: _parsed(facts) for name, facts in rows}
            if self.meta("schema_version") not in _OLDER:
                self._join(found)
            return tuple(decoded(Setting, {**facts, "name": name}) for name, facts in found.items())

    def _join(self, settings: Mapping[str, dict[str, Any]]) -> None:
        """Add to each setting's facts what was measured later."""
        for name, facts in self._read("SELECT setting, facts FROM trainings ORDER BY seed"):
            # A running audit may have added the setting after the settings were read.
            if name in settings:
                settings[name].setdefault("trainings", []).append(json.loads(facts))
        for name, facts in self._read("SELECT setting, facts FROM authenticity"):
            if name in settings:
                settings[name]["authenticity"] = _parsed(facts)

    def add_setting(self, setting: Setting) -> None:
        """Store a setting's facts, before its trainings and its judge."""
        row = (setting.name, _json(setting))
        self._write([("INSERT OR REPLACE INTO settings VALUES (?, ?)", row)])

    def add_training(self, setting: str, training: VictimTraining) -> None:
        """Store one training with a setting's defence."""
        row = (setting, training.seed, _json(training))
        self._write([("INSERT OR REPLACE INTO trainings VALUES (?, ?, ?)", row)])

    def add_authenticity(self, setting: str, found: Authenticity) -> None:
        """Store the verdicts on a setting's candidates."""
        row = (setting, _json(found))
        self._write([("INSERT OR REPLACE INTO authenticity VALUES (?, ?)", row)])

    def keys(self) -> set[str]:
        """Return the keys of all finished trials."""
        return {str(row[0]) for row in self._read("SELECT key FROM records")}

    def counts(self) -> dict[str, int]:
        """Return the number of finished trials of each setting that has some."""
        return dict(self._read("SELECT setting, COUNT(*) FROM records GROUP BY setting"))

    def add_outcomes(self, outcomes: Iterable[Outcome], versions: Mapping[str, str]) -> None:
        """Store outcomes, all of them or none."""
        places = ", ".join("?" * len(COLUMNS))
        statement = f"INSERT OR IGNORE INTO records ({', '.join(COLUMNS)}) VALUES ({places})"
        self._write([(statement, row_of(outcome, versions)) for outcome in outcomes])

    def outcomes(self) -> tuple[Outcome, ...]:
        """Return every outcome, in the plan's order: settings, attacks, guesses last, targets.

        Attacks are kept in that order for each unit of targets, so that their first rows show it.
        """
        query = (
            f"SELECT {', '.join(COLUMNS)} FROM records ORDER BY "
            "(SELECT settings.rowid FROM settings WHERE name = setting), baseline, "
            "MIN(records.rowid) OVER (PARTITION BY setting, attack), target"
        )
        rows = self._read(query)
        with self._damage_named():
            return tuple(outcome_of(row) for row in rows)

    def forget(self) -> None:
        """Remove everything except trials, so that another plan can start."""
        tables = ("settings", "trainings", "authenticity")
        self._write(
            [
                ("DELETE FROM meta WHERE name != 'schema_version'", ()),
                *((f"DELETE FROM {table}", ()) for table in tables),
            ]
        )
        for path in (self.folder / "artefacts").iterdir():
            path.unlink()

    def save_arrays(self, name: str, arrays: Mapping[str, Array]) -> None:
        """Store arrays under ``name`` in the folder's artefacts."""
        write_arrays(self._artefact(name), dict(arrays))

    def arrays(self, name: str) -> dict[str, Array]:
        """Return the arrays stored under ``name``; empty if they were removed."""
        path = self._artefact(name)
        return read_arrays(path) if path.is_file() else {}

    def artefacts(self) -> tuple[str, ...]:
        """Return the names of all arrays kept."""
        return tuple(sorted(path.stem for path in self._artefact("*").parent.glob("*.safetensors")))

    def _artefact(self, name: str) -> Path:
        return self.folder / "artefacts" / f"{name}.safetensors"

    def _require_version(self, *known: str) -> None:
        version = self.meta("schema_version")
        if version in known:
            return
        if version in _OLDER:
            raise StoreError(
                f"{self.folder} was written by an older version (schema {version}): its report can "
                "be rendered, but its run cannot be resumed; use a new --out"
            )
        plain = version is not None and version.isdecimal() and len(version) < 10
        named = f"schema {version}" if plain else "no number for its schema"
        raise InputError(
            f"{self.folder} was written with {named}, this version reads "
            f"{', '.join(_OLDER)} and {SCHEMA_VERSION}; use a new --out"
        )

    def _read(self, statement: str, *values: str) -> list[tuple[Any, ...]]:
        # Fetch all rows at once: damage shows only while they are fetched.
        try:
            return self._database.execute(statement, values).fetchall()
        except _UNREADABLE as error:
            raise _store_error(self.folder, error) from None

    @contextmanager
    def _damage_named(self) -> Iterator[None]:
        """Name the damage: rows that SQLite can read may still differ from what was written."""
        try:
            yield
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _damaged(self.folder, error) from None

    def _write(self, statements: Iterable[tuple[str, tuple[Any, ...]]]) -> None:
        try:
            with self._database:
                for statement, values in statements:
                    self._database.execute(statement, values)
        except _UNREADABLE as error:
            raise _store_error(self.folder, error) from None


def _connected(path: Path) -> sqlite3.Connection:
    try:
        return sqlite3.connect(path, timeout=30)
    except sqlite3.Error as error:
        raise _store_error(path.parent, error) from None


def _connected_to_read(path: Path) -> sqlite3.Connection:
    """A read-only disk cannot hold the journal's index: read the file alone."""
    journal = path.with_name(f"{path.name}-wal")
    if os.access(path.parent, os.W_OK) or journal.exists():
        return _connected(path)
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)


def _require_ours(folder: Path) -> None:
    """Refuse a folder with other content, because only its owner could read it afterwards."""
    if not folder.is_dir() or (folder / _DATABASE).exists():
        return
    # These two are created before the database.
    strangers = sorted(p.name for p in folder.iterdir() if p.name not in ("artefacts", "lock"))
    if strangers:
        raise StoreError(
            f"{folder} is not a run folder, and not empty (it holds {strangers[0]!r}); give --out "
            "a new folder"
        )


def _damaged(folder: Path, error: Exception) -> StoreError:
    reason = " ".join(str(error).split())[:120]
    return StoreError(f"{folder}: {_DATABASE} is damaged ({reason}); use a new --out")


def _store_error(folder: Path, error: Exception) -> StoreError:
    text = str(error)
    if "full" in text:
        text = (
            "the disk is full; finished trials are kept: free some space and run the same "
            "command again"
        )
    elif any(sign in text for sign in ("malformed", "not a database", "decode", "no such table")):
        return _damaged(folder, error)
    return StoreError(f"{folder}: {text}")


def _locked(folder: Path) -> IO[str]:
    try:
        lock = (folder / "lock").open("w")
    except OSError as error:
        raise StoreError(explained(folder, error)) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise StoreError(
            f"{folder} is in use by another audit; wait for it or choose another --out"
        ) from None
    os.fchmod(lock.fileno(), 0o600)
    return lock


def _json(value: Setting | VictimTraining | Authenticity) -> str:
    return json.dumps(encoded(value), sort_keys=True)


def _parsed(facts: str) -> Any:
    # Older runs call the third verdict of a judge by another name.
    return json.loads(facts.replace('"cannot be told"', '"undecided"'))
