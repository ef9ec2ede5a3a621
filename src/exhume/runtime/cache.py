"""A cache of arrays that took long to compute, shared between runs and processes.

The folder is ``$EXHUME_CACHE``, or ``exhume`` in the user's cache folder; ``EXHUME_CACHE=off``
disables the cache. It contains models trained on private records, so only its owner can read it. A
failure here never stops an audit: what cannot be written is computed again next time.

The content of the cache is grouped in shelves.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from exhume.protocol.arrays import Array
from exhume.protocol.errors import InputError, StoreError
from exhume.runtime.cache_files import about, packed, unpacked

FOLDER, LIMIT, OFF = "EXHUME_CACHE", "EXHUME_CACHE_LIMIT", "off"
DEFAULT_LIMIT = 2_000_000_000
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SHELF = re.compile(r"[a-z]+-[0-9a-f]{32}")
_ABANDONED_SECONDS = 3600.0
"""A half-written file this old belongs to a process that was killed."""
_IN_USE_SECONDS = 86_400.0


@dataclass(frozen=True)
class CachedFile:
    """One cached file: its folder and name, bytes, and the time of its last use (Unix time)."""

    path: Path
    size: int
    used: float


@dataclass
class Cache:
    """A folder of arrays by (shelf, name); with ``folder`` None nothing is stored.

    After a write has failed, ``problem`` says why nothing more can be stored. An ``elastic`` cache
    exceeds its limit for what was used within a day, up to half of the space that is free.
    """

    folder: Path | None
    limit: int = DEFAULT_LIMIT
    problem: str = ""
    elastic: bool = False

    def load(self, shelf: str, name: str) -> dict[str, Array] | None:
        """Return the stored arrays, or None if there are none or they are damaged."""
        path = self.place(shelf, name)
        if path is None:
            return None
        try:
            found = unpacked(path.read_bytes(), f"{shelf}/{name}")
        except OSError:
            return None
        if found is None:
            with contextlib.suppress(OSError):
                path.unlink()
        else:
            with contextlib.suppress(OSError):
                os.utime(path)
        return found

    def holds(self, shelf: str, name: str) -> bool:
        """Whether there are such arrays, without reading them."""
        path = self.place(shelf, name)
        return path is not None and path.is_file()

    def room(self) -> int:
        """Return how many bytes may be stored in all; nothing where nothing is stored."""
        if self.folder is None or self.problem:
            return 0
        if not self.elastic:
            return self.limit
        existing = next((p for p in (self.folder, *self.folder.parents) if p.is_dir()), None)
        free = 0 if existing is None else shutil.disk_usage(existing).free
        return max(self.limit, (free + sum(entry.size for entry in self.entries())) // 2)

    def keep(self, shelf: str, name: str, arrays: Mapping[str, Array], *, about: str) -> None:
        """Store arrays, all or nothing; ``about`` is a short description."""
        from exhume.runtime.durable import make_folder, write_bytes

        path = self.place(shelf, name)
        if path is None or self.problem:
            return
        try:
            content = packed(arrays, f"{shelf}/{name}", about)
            if not self.make_room(len(content)):
                return
            for folder in (path.parent.parent, path.parent):
                if not folder.is_dir():
                    make_folder(folder)
            write_bytes(path, content)
        except (StoreError, OSError) as error:
            self.problem = str(error)

    def computed(
        self,
        shelf: str,
        name: str,
        compute: Callable[[], dict[str, Array]],
        *,
        about: str,
        wait: bool,
    ) -> dict[str, Array] | None:
        """Return the stored arrays, or compute and store them.

        If another process is computing them, wait for it; without ``wait``, return None at once.
        """
        found = self.load(shelf, name)
        if found is not None:
            return found
        with self.turn(shelf, name, wait=wait) as mine:
            if not mine:
                return None
            # Perhaps another process finished it while we waited.
            found = self.load(shelf, name)
            if found is None:
                found = compute()
                self.keep(shelf, name, found, about=about)
            return found

    @contextlib.contextmanager
    def turn(self, shelf: str, name: str, *, wait: bool) -> Iterator[bool]:
        """Hold the lock to compute one file; yields False if another process has it.

        The system releases the lock when a process ends for any reason. Without file locks, every
        process may compute: work may be done twice, but never wrongly.
        """
        path = self.place(shelf, name)
        handle = None if path is None or self.problem else _opened(path.with_suffix(".lock"))
        if handle is None:
            yield True
            return
        try:
            mine = _locked(handle, wait=wait)
            yield mine
            if mine and path is not None:
                # A process that waits for this file looks for the result first, so it may be
                # deleted.
                with contextlib.suppress(OSError):
                    path.with_suffix(".lock").unlink()
        finally:
            os.close(handle)

    def entries(self) -> list[CachedFile]:
        """Return every stored file, the least recently used first."""
        found = []
        for path in self._files("*.safetensors"):
            with contextlib.suppress(OSError):
                state = path.stat()
                found.append(CachedFile(path, state.st_size, state.st_mtime))
        return sorted(found, key=lambda entry: (entry.used, str(entry.path)))

    def empty(self) -> int:
        """Delete all stored files; return the number of bytes deleted."""
        gone = sum(self._deleted(entry) for entry in self.entries())
        for path in [*self._files("*.lock"), *self._files(".tmp-*")]:
            with contextlib.suppress(OSError):
                path.unlink()
        for shelf in self._shelves():
            with contextlib.suppress(OSError):
                shelf.rmdir()
        return gone

    def make_room(self, size: int) -> bool:
        """Delete what was not used for longest; says whether there is room then."""
        room = self.room()
        if size > room:
            self.problem = f"{size:,} bytes are more than {LIMIT}={room:,} allows"
            return False
        entries = self.entries()
        total = size + sum(entry.size for entry in entries)
        now = time.time()
        for entry in entries:
            recent = self.elastic and now - entry.used < _IN_USE_SECONDS
            if total <= (room if recent else self.limit):
                break
            total -= self._deleted(entry)
        self._sweep()
        return True

    def _deleted(self, entry: CachedFile) -> int:
        try:
            entry.path.unlink()
        except OSError:
            return 0
        # A shelf is deleted with its last file.
        with contextlib.suppress(OSError):
            entry.path.parent.rmdir()
        return entry.size

    def _sweep(self) -> None:
        for path in self._files(".tmp-*"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > _ABANDONED_SECONDS:
                    path.unlink()

    def _shelves(self) -> list[Path]:
        """Return the folders of this cache; other folders are never touched."""
        if self.folder is None:
            return []
        try:
            return [path for path in self.folder.iterdir() if _SHELF.fullmatch(path.name)]
        except OSError:
            return []

    def _files(self, pattern: str) -> Iterator[Path]:
        for shelf in self._shelves():
            yield from shelf.glob(pattern)

    def place(self, shelf: str, name: str) -> Path | None:
        """Return the file of such arrays, whether there is one or not."""
        return None if self.folder is None else self.folder / shelf / f"{name}.safetensors"


def shelf_name(kind: str, key: str) -> str:
    """Return the folder's name for one kind of content: ``shadows-`` and half of a fingerprint."""
    return f"{kind}-{key[:32]}"


def user_cache() -> Cache:
    """Return the cache that the environment selects."""
    named = os.environ.get(FOLDER, "")
    if named.strip().lower() == OFF:
        return Cache(None)
    folder = Path(named).expanduser() if named else _platform_folder() / "exhume"
    text = os.environ.get(LIMIT, "")
    return Cache(folder, _limit(text), elastic=not text.strip())


def _limit(text: str) -> int:
    """Return a number of bytes: ``500 MB``, ``2GB``, ``1000000``."""
    if not text.strip():
        return DEFAULT_LIMIT
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if found is None or found[2].upper() not in _UNITS:
        raise InputError(f"{LIMIT} must be a size such as 500 MB or 2 GB, got {text!r}")
    return int(float(found[1]) * _UNITS[found[2].upper()])


def _platform_folder() -> Path:
    import sys

    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _opened(path: Path) -> int | None:
    from exhume.runtime.durable import make_folder

    try:
        for folder in (path.parent.parent, path.parent):
            if not folder.is_dir():
                make_folder(folder)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except (OSError, StoreError):
        return None


def _locked(handle: int, *, wait: bool) -> bool:
    try:
        import fcntl
    except ImportError:  # no such locks on this platform
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


_MODELS = re.compile(r"(\d+) shadow models")


@dataclass(frozen=True)
class Shelf:
    """One training's shadow models, or one reconstructor: bytes, and the last use (Unix time)."""

    name: str
    content: str
    size: int
    used: float


def survey(cache: Cache) -> list[Shelf]:
    """Return the shelves, the most recently used first."""
    entries = sorted(cache.entries(), key=lambda entry: entry.path.parent.name)
    shelves = [
        _shelf(name, list(files))
        for name, files in groupby(entries, key=lambda entry: entry.path.parent.name)
    ]
    return sorted(shelves, key=lambda shelf: (-shelf.used, shelf.name))


def _shelf(name: str, files: list[CachedFile]) -> Shelf:
    said = [about(file.path) for file in files]
    counts = [int(found[1]) for text in said if (found := _MODELS.fullmatch(text))]
    other = [text for text in said if text.startswith("from ")]
    if name.startswith("victims-"):
        other = [f"{len(files):,} results of a loop of your own"]
    content = other[0] if other else f"{sum(counts):,} shadow models"
    return Shelf(name, content, sum(file.size for file in files), max(file.used for file in files))
