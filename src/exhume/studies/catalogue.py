"""Every paper with its parts."""

from __future__ import annotations

from exhume.errors import InputError
from exhume.studies import balle2022, liu2024, runkel2024
from exhume.studies.base import Part

_PAPERS = {
    "balle2022": (balle2022.TITLE, balle2022.PARTS),
    "liu2024": (liu2024.TITLE, liu2024.PARTS),
    "runkel2024": (runkel2024.TITLE, runkel2024.PARTS),
}


def papers() -> dict[str, str]:
    """Return the papers' titles by name."""
    return {name: title for name, (title, _) in _PAPERS.items()}


def parts(paper: str) -> tuple[Part, ...]:
    """Return the parts of a paper, in its own order."""
    if paper not in _PAPERS:
        raise InputError(f"there is no study called {paper!r}; there are {', '.join(_PAPERS)}")
    return _PAPERS[paper][1]


def find(paper: str, name: str) -> Part:
    """Return one part of a paper."""
    known = {part.name: part for part in parts(paper)}
    if name not in known:
        raise InputError(f"{paper} has no part {name!r}; there are {', '.join(known)}")
    return known[name]
