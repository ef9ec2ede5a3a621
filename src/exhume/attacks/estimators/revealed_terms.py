"""Terms that only the missing record has: a vocabulary lists them, and so names its text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from exhume.attacks.estimators.revealed_levels import RevealedLevel
from exhume.protocol.arrays import Array
from exhume.protocol.errors import InputError
from exhume.protocol.schema import Schema
from exhume.training.fitted_state import parts_with

if TYPE_CHECKING:
    from exhume.attacks.estimators.refit import FittedRelease

_VOCABULARY = "vocabulary_"


@dataclass(frozen=True)
class RevealedTerms:
    """Terms of a released vocabulary that no known record has, and the vectoriser that lists them.

    ``vectoriser`` is a CountVectorizer, a TfidfVectorizer or a DictVectorizer, fitted on what is
    known.
    """

    terms: tuple[str, ...]
    vectoriser: Any

    def levels(self, schema: Schema) -> list[RevealedLevel]:
        """Return the one level that has all these terms, if exactly one of all columns has."""
        found = [
            RevealedLevel(column.name, level)
            for column in schema.columns
            for level in column.levels
            if set(self.terms) <= set(self._terms_of(column.name, level))
        ]
        return found if len(found) == 1 else []

    def _terms_of(self, column: str, level: object) -> Sequence[str]:
        if not hasattr(self.vectoriser, "build_analyzer"):
            return [f"{column}{self.vectoriser.separator}{level}"]
        return list(self.vectoriser.build_analyzer()(level)) if isinstance(level, str) else []


def revealed_terms(problem: FittedRelease) -> list[RevealedTerms]:
    """Return what released vocabularies list and no known record has."""
    released = dict(_vocabularies(problem.attributes))
    if not released:
        return []
    try:
        fitted = problem.estimator.fitted(problem.known)
    except InputError:
        return []
    return [
        RevealedTerms(new, part)
        for path, part in parts_with(fitted, _VOCABULARY)
        if (new := tuple(sorted(released.get(path, set()) - set(part.vocabulary_))))
    ]


def _vocabularies(attributes: Mapping[str, Array]) -> Iterator[tuple[str, set[str]]]:
    """Yield the path of each vectoriser that a release holds, with the terms it lists."""
    found: dict[str, set[str]] = {}
    for name in attributes:
        path, mark, term = name.partition(f"{_VOCABULARY}.")
        if mark:
            found.setdefault(path.rstrip("."), set()).add(term)
    yield from found.items()
