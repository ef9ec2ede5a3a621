"""What the cache holds, a shelf at a time."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from exhume.shadows.cache import Cache, Entry
from exhume.shadows.sealed import about


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
    counts = [int(text.split()[0]) for text in said if text.endswith(" shadow models")]
    models = [int(text.split()[-3]) for text in said if text.startswith("a reconstructor of ")]
    if models:
        content = f"a reconstructor of {models[0]:,} shadow models"
    else:
        content = f"{sum(counts):,} shadow models"
    return Shelf(name, content, sum(file.size for file in files), max(file.used for file in files))
