"""The data on this machine: all named data sets, found or missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from exhume.data.catalogue import SOURCES
from exhume.data.dataset import Sizes, Task
from exhume.data.folder import search_folders
from exhume.data.lpips_weights import (
    LPIPS_FILE,
    LPIPS_REMEDY,
    check_lpips_weights,
    find_lpips_weights,
)
from exhume.data.source import Source, Where
from exhume.protocol.errors import InputError


@dataclass(frozen=True)
class SurveyEntry:
    """One line of the survey.

    If ``where`` is None, the entry is missing, and ``remedy`` says how to get it; ``problem`` says
    what is wrong with a found entry. ``task``, ``record_shape`` and ``sizes`` are None for the
    metric's weights, which are not a data set.
    """

    name: str
    task: Task | None = None
    record_shape: tuple[int, ...] | None = None
    where: Where | None = None
    path: Path | None = None
    sizes: Sizes | None = None
    problem: str | None = None
    remedy: str | None = None


@dataclass(frozen=True)
class Survey:
    """All entries, and the searched folders; ``problem`` if the given folder does not exist."""

    entries: tuple[SurveyEntry, ...]
    folders: tuple[Path, ...]
    problem: str | None

    @property
    def sound(self) -> bool:
        """Whether all found entries and the given folder are intact.

        Missing entries are no problem.
        """
        return self.problem is None and all(entry.problem is None for entry in self.entries)


def survey(*, folder: Path | None = None) -> Survey:
    """Search every data set and the metric's weights, reading only file headers."""
    folders: tuple[Path, ...] = ()
    problem = None
    try:
        folders = search_folders(folder)
    except InputError as error:
        problem = str(error)
    entries = tuple(_entry(source, folders) for source in SOURCES)
    return Survey((*entries, _weights_entry(folders)), folders, problem)


def checked(found: Survey) -> Iterator[SurveyEntry]:
    """Read and check all found entries, one after the other; yield each entry."""
    readers = {source.name: source for source in SOURCES}
    for entry in found.entries:
        if entry.where is None or entry.problem is not None:
            yield entry
            continue
        try:
            if entry.path is not None and entry.name == LPIPS_FILE:
                check_lpips_weights(entry.path)
            else:
                readers[entry.name].load(found.folders)
            yield entry
        except InputError as error:
            yield replace(entry, problem=str(error))


def _entry(source: Source, folders: tuple[Path, ...]) -> SurveyEntry:
    entry = SurveyEntry(source.name, source.task, source.record_shape)
    try:
        found = source.find(folders)
    except InputError as error:
        return replace(entry, where=source.where, problem=str(error), remedy=source.remedy)
    if found is None:
        return replace(entry, remedy=source.remedy)
    return replace(entry, where=source.where, path=found.path, sizes=found.sizes)


def _weights_entry(folders: tuple[Path, ...]) -> SurveyEntry:
    path = find_lpips_weights(folders)
    if path is None:
        return SurveyEntry(LPIPS_FILE, remedy=LPIPS_REMEDY)
    return SurveyEntry(LPIPS_FILE, where=Where.FILE, path=path)
