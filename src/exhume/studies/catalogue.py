"""Every paper with its parts."""

from __future__ import annotations

from typing import Any

from exhume.protocol.errors import InputError
from exhume.protocol.names import no_such
from exhume.studies import balle2022, liu2024, runkel2024
from exhume.studies.part import Part

_PAPERS: dict[str, tuple[str, tuple[Part[Any], ...]]] = {
    "balle2022": (balle2022.TITLE, balle2022.PARTS),
    "liu2024": (liu2024.TITLE, liu2024.PARTS),
    "runkel2024": (runkel2024.TITLE, runkel2024.PARTS),
}


def papers() -> dict[str, str]:
    """Return the papers' titles by name."""
    return {name: title for name, (title, _) in _PAPERS.items()}


def parts(paper: str) -> tuple[Part[Any], ...]:
    """Return the parts of a paper, in its own order."""
    if paper not in _PAPERS:
        raise InputError(no_such("study", paper, _PAPERS))
    return _PAPERS[paper][1]


def find(paper: str, name: str) -> Part[Any]:
    """Return one part of a paper."""
    known = {part.name: part for part in parts(paper)}
    if name not in known:
        raise InputError(f"{paper}: {no_such('part', name, known)}")
    return known[name]
