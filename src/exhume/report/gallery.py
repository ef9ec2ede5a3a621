"""Target, rebuilt, nearest known record, side by side: the best, the median and the worst."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from exhume.arrays import Array
from exhume.audit.record import Record
from exhume.audit.store import Store
from exhume.audit.summary import ran
from exhume.report.digits import Digits, digits
from exhume.report.evidence import Truth, first_candidates, read_truth
from exhume.report.facts import Facts
from exhume.report.pictures import picture
from exhume.report.words import number

_PICTURES_EACH = 2
_COLUMNS = 6


@dataclass(frozen=True)
class Shown:
    """One target: how it ranks among all, and its distances as text."""

    rank: str
    target: int
    distance: str
    threshold: str
    success: bool | None


@dataclass(frozen=True)
class Pictured:
    """One target as pictures, each a data URI; None where the truth is not known."""

    shown: Shown
    target: str | None
    rebuilt: str
    nearest: str | None


@dataclass(frozen=True)
class Listed:
    """One target as values of its first columns; without the truth, what was rebuilt alone."""

    shown: Shown
    target: tuple[Digits, ...] | None
    rebuilt: tuple[Digits, ...]
    nearest: tuple[Digits, ...] | None


@dataclass(frozen=True)
class Gallery:
    """What one attack rebuilt: pictures or values, never both."""

    attack: str
    pictures: tuple[Pictured, ...] = ()
    values: tuple[Listed, ...] = ()
    columns: int = 0
    missing: int = 0

    @property
    def judged(self) -> bool:
        """Whether the targets are known."""
        known = [p.target is not None for p in self.pictures]
        return any(known or [v.target is not None for v in self.values])


def gallery(store: Store, records: Sequence[Record], facts: Facts) -> Gallery | None:
    """Show what one attack rebuilt, from its records of one setting; None where nothing is kept."""
    if not records:
        return None
    found = [r for r in records if ran(r) and r.distance is not None]
    unjudged = [r for r in records if ran(r) and r.threshold is None]
    chosen = ranked(found or unjudged, each=_PICTURES_EACH if facts.picture else 1)
    samples = first_candidates(store, [record for _, record in chosen], facts)
    truth = read_truth(store, facts)
    kept = [(rank, r, x) for (rank, r), x in zip(chosen, samples, strict=True) if x is not None]
    if not kept:
        return None
    attack, missing = records[0].trial.attack, len(records) - len(found or unjudged)
    if facts.picture:
        shown = tuple(_pictured(rank, r, x, truth, facts) for rank, r, x in kept)
        return Gallery(attack, pictures=shown, missing=missing)
    listed = tuple(_listed(rank, r, x, truth) for rank, r, x in kept)
    return Gallery(attack, values=listed, columns=len(listed[0].rebuilt), missing=missing)


def ranked(records: Sequence[Record], *, each: int) -> list[tuple[str, Record]]:
    """Return ``each`` of the best, median and worst records by distance, with their rank's name."""
    order = sorted(records, key=lambda r: (r.distance or 0.0, r.trial.target))
    count = len(order)
    if count < 2:
        return [("the only one", record) for record in order]
    if count < 3 * each:
        names = ["best", *["between"] * (count - 2), "worst"]
        return list(zip(names, order, strict=True))
    middle = (count - each) // 2
    starts = (("best", 0), ("median", middle), ("worst", count - each))
    return [(name, record) for name, at in starts for record in order[at : at + each]]


def _pictured(rank: str, record: Record, sample: Array, truth: Truth | None, f: Facts) -> Pictured:
    target, nearest = _true(record, truth)
    seen = sample if target is None else target
    span = f.value_range or (float(np.min(seen)), float(np.max(seen)))
    return Pictured(
        _shown(rank, record),
        None if target is None else picture(target, span),
        picture(sample, span),
        None if nearest is None else picture(nearest, span),
    )


def _listed(rank: str, record: Record, sample: Array, truth: Truth | None) -> Listed:
    target, nearest = _true(record, truth)
    reference = sample if target is None else target
    return Listed(
        _shown(rank, record),
        None if target is None else _values(target, target),
        _values(sample, reference),
        None if nearest is None else _values(nearest, reference),
    )


def _true(record: Record, truth: Truth | None) -> tuple[Array | None, Array | None]:
    index = record.trial.target
    if truth is None or index >= len(truth.targets):
        return None, None
    return truth.targets[index], truth.nearest[index]


def _values(record: Array, reference: Array) -> tuple[Digits, ...]:
    pairs = zip(record.ravel()[:_COLUMNS], reference.ravel()[:_COLUMNS], strict=True)
    return tuple(digits(float(value), float(target)) for value, target in pairs)


def _shown(rank: str, record: Record) -> Shown:
    return Shown(
        rank,
        record.trial.target,
        number(record.distance),
        number(record.threshold),
        record.success,
    )
