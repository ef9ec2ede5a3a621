"""What the cache holds, a shelf at a time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby

from exhume.shadows.cache import Cache, Entry
from exhume.shadows.sealed import about

_MODELS = re.compile(r"(\d+) shadow models")


@dataclass(frozen=True)
class Shelf:
    """One training's shadow models, or one reconstructor: bytes, and when last used (Unix time)."""

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


def _shelf(name: str, files: list[Entry]) -> Shelf:
    said = [about(file.path) for file in files]
    counts = [int(found[1]) for text in said if (found := _MODELS.fullmatch(text))]
    other = [text for text in said if text.startswith("from ")]
    content = other[0] if other else f"{sum(counts):,} shadow models"
    return Shelf(name, content, sum(file.size for file in files), max(file.used for file in files))
