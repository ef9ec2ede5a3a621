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

import numpy as np

from exhume.arrays import Array
from exhume.audit.durable import explained, make_folder
from exhume.audit.files import read_arrays, write_arrays
from exhume.audit.record import SCHEMA_VERSION, Record, Trial
from exhume.errors import InputError, StoreError
from exhume.reconstruction import Status

_DATABASE = "records.sqlite"
_UNREADABLE = (sqlite3.Error, UnicodeDecodeError)
_TABLES = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, facts TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS records (
  key TEXT PRIMARY KEY, setting TEXT NOT NULL, attack TEXT NOT NULL, target INTEGER NOT NULL,
  seed INTEGER NOT NULL, settings TEXT NOT NULL, versions TEXT NOT NULL, status TEXT NOT NULL,
  message TEXT NOT NULL, success INTEGER, distance REAL, threshold REAL, scores TEXT NOT NULL,
  label_correct INTEGER, confidence REAL, error_estimate REAL, stats TEXT NOT NULL,
  artefact TEXT NOT NULL, row INTEGER NOT NULL, seconds REAL NOT NULL, baseline INTEGER NOT NULL
);
"""
_COLUMNS = (
    "key, setting, attack, target, seed, settings, versions, status, message, success, distance, "
    "threshold, scores, label_correct, confidence, error_estimate, stats, artefact, row, seconds, "
    "baseline"
)


class Store:
    """An open run folder. One process writes; a second one is turned away."""

    def __init__(self, folder: Path, *, database: sqlite3.Connection, lock: IO[str] | None) -> None:
        self.folder = folder
        self._database = database
        self._lock = lock

    @classmethod
    def create(cls, folder: Path) -> Store:
        """Open ``folder`` for writing, making it where needed."""
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
        # What a killed process was writing: nobody else writes here while the lock is held.
        for leftover in folder.rglob(".tmp-*"):
            leftover.unlink(missing_ok=True)
        store = cls(folder, database=database, lock=lock)
        version = store.meta("schema_version")
        if version is None:
            store.set_meta("schema_version", str(SCHEMA_VERSION))
        store._require_version()
        return store

    @classmethod
    def open(cls, folder: Path) -> Store:
        """Open an existing run folder for reading."""
        if not (folder / _DATABASE).is_file():
            raise InputError(f"{folder} is not a run folder: it has no {_DATABASE}")
        store = cls(folder, database=_connected_to_read(folder / _DATABASE), lock=None)
        store._require_version()
        return store

    def close(self) -> None:
        """Close the database and let go of the folder."""
        self._database.close()
        if self._lock is not None:
            self._lock.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def meta(self, name: str) -> str | None:
        """Return what is noted about the run under ``name``."""
        rows = self._read("SELECT value FROM meta WHERE name = ?", name)
        return str(rows[0][0]) if rows else None

    def set_meta(self, name: str, value: str) -> None:
        """Note something about the run."""
        self._write([("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))])

    def facts(self) -> dict[str, dict[str, Any]]:
        """Return what was measured of each setting, by name, in the order they were added."""
        rows = self._read("SELECT name, facts FROM settings ORDER BY rowid")
        with self._damage_named():
            return {name: json.loads(text) for name, text in rows}

    def add_facts(self, name: str, facts: Mapping[str, Any]) -> None:
        """Keep what was measured of a setting."""
        text = json.dumps(facts, sort_keys=True)
        self._write([("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, text))])

    def amend_facts(self, name: str, more: Mapping[str, Any]) -> None:
        """Add to what was measured of a setting, in its place."""
        text = json.dumps({**self.facts()[name], **more}, sort_keys=True)
        self._write([("UPDATE settings SET facts = ? WHERE name = ?", (text, name))])

    def keys(self) -> set[str]:
        """Return the keys of all trials done."""
        return {str(row[0]) for row in self._read("SELECT key FROM records")}

    def add(self, records: Iterable[Record], versions: Mapping[str, str]) -> None:
        """Keep records, all of them or none."""
        places = ", ".join("?" * len(_COLUMNS.split(",")))
        statement = f"INSERT OR IGNORE INTO records ({_COLUMNS}) VALUES ({places})"
        self._write([(statement, _row(record, versions)) for record in records])

    def records(self) -> list[Record]:
        """Return every record, in the order of settings, attacks and targets."""
        query = f"SELECT {_COLUMNS} FROM records ORDER BY setting, baseline, attack, target"
        rows = self._read(query)
        with self._damage_named():
            return [_record(row) for row in rows]

    def forget(self) -> None:
        """Remove whatever is noted and kept beside records, for another plan to begin afresh."""
        self._write(
            [("DELETE FROM meta WHERE name != 'schema_version'", ()), ("DELETE FROM settings", ())]
        )
        for path in (self.folder / "artefacts").iterdir():
            path.unlink()

    def save_arrays(self, name: str, arrays: Mapping[str, Array]) -> None:
        """Keep arrays under ``name`` in the folder's artefacts."""
        write_arrays(self._artefact(name), dict(arrays))

    def arrays(self, name: str) -> dict[str, Array]:
        """Return the arrays kept under ``name``; empty where they were removed."""
        path = self._artefact(name)
        return read_arrays(path) if path.is_file() else {}

    def _artefact(self, name: str) -> Path:
        return self.folder / "artefacts" / f"{name}.safetensors"

    def _require_version(self) -> None:
        version = self.meta("schema_version")
        if version != str(SCHEMA_VERSION):
            raise InputError(
                f"{self.folder} was written with schema {version}, this version reads "
                f"{SCHEMA_VERSION}; use a new --out"
            )

    def _read(self, statement: str, *values: str) -> list[tuple[Any, ...]]:
        # All rows at once: damage shows while they are fetched, not before.
        try:
            return self._database.execute(statement, values).fetchall()
        except _UNREADABLE as error:
            raise _store_error(self.folder, error) from None

    @contextmanager
    def _damage_named(self) -> Iterator[None]:
        """Rows that SQLite can read may still not be what was written."""
        try:
            yield
        except (ValueError, KeyError, TypeError) as error:
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
    """On a read-only disk there is no room for the journal's index: read the file alone."""
    journal = path.with_name(f"{path.name}-wal")
    if os.access(path.parent, os.W_OK) or journal.exists():
        return _connected(path)
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)


def _require_ours(folder: Path) -> None:
    """Refuse a folder that holds other things: it would be closed to everyone but its owner."""
    if not folder.is_dir() or (folder / _DATABASE).exists():
        return
    # These two are made before the database is.
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
            "the disk is full; what was finished before is kept: free some space and run the same "
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


def _row(record: Record, versions: Mapping[str, str]) -> tuple[Any, ...]:
    trial = record.trial
    return (
        trial.key,
        trial.setting,
        trial.attack,
        trial.target,
        trial.seed,
        trial.settings,
        json.dumps(versions, sort_keys=True),
        record.status,
        record.message,
        record.success,
        record.distance,
        record.threshold,
        json.dumps(record.scores, sort_keys=True),
        record.label_correct,
        record.confidence,
        record.error_estimate,
        json.dumps(record.stats, sort_keys=True, default=_plain),
        record.artefact,
        record.row,
        record.seconds,
        record.baseline,
    )


def _plain(value: Any) -> Any:
    """NumPy's numbers are easily taken for Python's."""
    return value.item() if isinstance(value, np.generic) else str(value)


def _record(row: tuple[Any, ...]) -> Record:
    def flag(value: int | None) -> bool | None:
        return None if value is None else bool(value)

    trial = Trial(row[1], row[2], row[3], row[4], row[5])
    if trial.key != row[0]:
        raise ValueError(f"the record of target {trial.target} is not what was written")
    return Record(
        trial,
        status=Status[row[7]].name,
        message=row[8],
        success=flag(row[9]),
        distance=row[10],
        threshold=row[11],
        scores=json.loads(row[12]),
        label_correct=flag(row[13]),
        confidence=row[14],
        error_estimate=row[15],
        stats=json.loads(row[16]),
        artefact=row[17],
        row=row[18],
        seconds=row[19],
        baseline=bool(row[20]),
    )
