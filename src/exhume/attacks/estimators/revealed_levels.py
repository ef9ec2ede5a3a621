"""Levels that only the missing record has: an encoder lists them, and so names them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from exhume.protocol.arrays import Array
from exhume.protocol.errors import InputError
from exhume.protocol.reconstruction import Reconstruction
from exhume.protocol.schema import Level
from exhume.training.estimator import Estimator
from exhume.training.fitted_state import state_of

if TYPE_CHECKING:
    from exhume.attacks.estimators.refit import FittedRelease

_CATEGORIES = "categories_"
_MOST = 20


@dataclass(frozen=True)
class RevealedLevel:
    """A level of a column that the release lists and no known record has."""

    column: str
    level: Level

    def entries(self, estimator: Estimator) -> tuple[tuple[int, float], ...]:
        """Return the entries of a record with this level, and their values."""
        schema = estimator.schema
        assert schema is not None
        number = schema.place(self.column)
        place, column = schema.places[number], schema.columns[number]
        if column.kind.numeric:
            values = [float(self.level), *([0.0] if column.missing else [])]
        else:
            values = [float(one == self.level) for one in column.levels]
            values += [0.0] if column.missing else []
        return tuple(zip(range(place.start, place.stop), values, strict=True))


def revealed_levels(problem: FittedRelease) -> list[RevealedLevel]:
    """Return the levels that released encoders list and no known record has, one per column."""
    schema = problem.estimator.schema
    listed = [n for n in problem.attributes if n.rpartition(".")[0].endswith(_CATEGORIES)]
    if schema is None or not listed:
        return []
    try:
        before = state_of(problem.estimator.fitted(problem.known))
    except InputError:
        return []
    known = schema.decode(problem.known.x)
    found: dict[str, RevealedLevel] = {}
    for name in listed:
        for level in _new(problem.attributes[name], before.get(name)):
            for column in schema.columns:
                there = {str(one) for one in known[column.name]}
                same = [one for one in column.levels if str(one) == level]
                if same and level not in there:
                    found.setdefault(column.name, RevealedLevel(column.name, same[0]))
    return list(found.values())


def _new(released: Array, before: Array | None) -> list[str]:
    old = set() if before is None else {str(one) for one in before.flat}
    new = [str(one) for one in released.flat if str(one) not in old]
    return new if len(new) <= _MOST else []


def named(
    answer: Reconstruction, levels: Sequence[RevealedLevel], terms: Sequence[str] = ()
) -> Reconstruction:
    """Return an answer whose message names the levels, and the terms of texts."""
    if not levels and not terms:
        return answer
    parts = [f"{one.column} {one.level}" for one in levels]
    parts += (
        [f"the term{'s' if len(terms) > 1 else ''} {', '.join(terms[:_MOST])}"] if terms else []
    )
    told = ", ".join(parts)
    message = f"the release lists what no known record has: {told}"
    return replace(answer, message="; ".join(part for part in (message, answer.message) if part))
