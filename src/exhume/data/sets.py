"""Data sets by name."""

from __future__ import annotations

import difflib
from pathlib import Path

from exhume.data.catalogue import FOLDER_IMAGES, SOURCES
from exhume.data.dataset import DataSet
from exhume.data.folder import search_folders
from exhume.protocol.errors import InputError


def names() -> tuple[str, ...]:
    """Return the names that ``load`` knows.

    >>> names()[:3]
    ('fashion-mnist-small', 'breast-cancer', 'wine')
    """
    return tuple(source.name for source in SOURCES)


def load(name: str, *, folder: Path | None = None) -> DataSet:
    """Read the data set ``name``, checked, from ``folder`` or the one $EXHUME_DATA names.

    Images are float32 in [0, 1], tables float64 in their own units; see ``DataSet``. The embedded
    images and scikit-learn's tables need no folder. InputError says what is wrong with a file, or
    how to get a data set that is missing.

    >>> load("fashion-mnist-small").train.x.shape
    (3000, 28, 28)
    """
    source = next((source for source in SOURCES if source.name == name), None)
    if source is None:
        close = difflib.get_close_matches(name, names(), n=1)
        meant = f" (did you mean {close[0]!r}?)" if close else ""
        raise InputError(f"no data set is called {name!r}{meant}; known are {', '.join(names())}")
    # A wrong folder does not matter for a set that needs no folder.
    needs_folder = source in FOLDER_IMAGES
    return source.load(search_folders(folder) if needs_folder else ())
