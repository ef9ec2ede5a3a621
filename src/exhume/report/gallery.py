"""Target, rebuilt, nearest known record, side by side: the best, the median and the worst."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from exhume.protocol.arrays import Array
from exhume.report.numbers import Digits, cell_digits, number
from exhume.report.png import picture
from exhume.runlog.artefacts import Truth, first_candidates, read_truth
from exhume.runlog.cells import compare_cells
from exhume.runlog.outcome import Outcome
from exhume.runlog.setting import Setting
from exhume.runlog.store import Store
from exhume.runlog.table_columns import TableColumn, cells_of

_PICTURES_EACH = 2
_COLUMNS = 40


@dataclass(frozen=True)
class Shown:
    """One target: its rank among all, and its distances as text."""

    rank: str
    target: int
    distance: str
    threshold: str
    success: bool | None


@dataclass(frozen=True)
class Pictured:
    """One target as pictures, each a data URI; None if the truth is not known."""

    shown: Shown
    target: str | None
    rebuilt: str
    nearest: str | None


@dataclass(frozen=True)
class ListedCell:
    """One column of a target; without the truth, only the rebuilt cell.

    ``right`` says that the cell came out; ``given`` that the adversary had it.
    """

    name: str
    target: Digits | None
    rebuilt: Digits
    nearest: Digits | None
    right: bool
    given: bool


@dataclass(frozen=True)
class Listed:
    """One target as a row of a table, column by column; ``more`` columns are not shown."""

    shown: Shown
    cells: tuple[ListedCell, ...]
    known: bool
    candidates: int
    more: int


@dataclass(frozen=True)
class Gallery:
    """What one attack rebuilt: pictures or values, never both."""

    attack: str
    pictures: tuple[Pictured, ...] = ()
    values: tuple[Listed, ...] = ()
    missing: int = 0
    candidates: int = 0
    unit: str = ""

    @property
    def judged(self) -> bool:
        """Whether the targets are known."""
        known = [p.target is not None for p in self.pictures]
        return any(known or [v.known for v in self.values])


def gallery(store: Store, records: Sequence[Outcome], setting: Setting) -> Gallery | None:
    """Show what one attack rebuilt, from its records of one setting; None if nothing is stored."""
    if not records:
        return None
    found = [r for r in records if r.ran and r.distance is not None]
    unjudged = [r for r in records if r.ran and r.threshold is None]
    chosen = ranked(found or unjudged, each=_PICTURES_EACH if setting.data.picture else 1)
    samples = first_candidates(store, [record for _, record in chosen], setting)
    truth = read_truth(store, setting)
    kept = [(rank, r, x) for (rank, r), x in zip(chosen, samples, strict=True) if x is not None]
    if not kept:
        return None
    attack, missing = records[0].trial.attack, len(records) - len(found or unjudged)
    named, unit = setting.data.candidates, setting.data.unit
    if setting.data.picture:
        shown = tuple(_pictured(rank, r, x, truth, setting) for rank, r, x in kept)
        return Gallery(attack, pictures=shown, missing=missing, candidates=named, unit=unit)
    listed = tuple(_listed(rank, r, x, truth, setting) for rank, r, x in kept)
    return Gallery(attack, values=listed, missing=missing, candidates=named, unit=unit)


def ranked(records: Sequence[Outcome], *, each: int) -> list[tuple[str, Outcome]]:
    """Return ``each`` of the best, median and worst records by distance, with their rank's name.

    Successes come first, whatever their distance, so that there is always one to be seen.
    """
    order = sorted(records, key=lambda r: (not r.success, r.distance or 0.0, r.trial.target))
    count = len(order)
    if count < 2:
        return [("the only target", record) for record in order]
    if count < 3 * each:
        names = ["best", *["between"] * (count - 2), "worst"]
        return list(zip(names, order, strict=True))
    middle = (count - each) // 2
    starts = (("best", 0), ("median", middle), ("worst", count - each))
    return [(name, record) for name, at in starts for record in order[at : at + each]]


def _pictured(
    rank: str, record: Outcome, sample: Array, truth: Truth | None, f: Setting
) -> Pictured:
    target, nearest = _true(record, truth)
    seen = sample if target is None else target
    span = f.data.value_range or (float(np.min(seen)), float(np.max(seen)))
    return Pictured(
        _shown(rank, record),
        None if target is None else picture(target, span),
        picture(sample, span),
        None if nearest is None else picture(nearest, span),
    )


def _listed(
    rank: str, record: Outcome, sample: Array, truth: Truth | None, setting: Setting
) -> Listed:
    target, nearest = _true(record, truth)
    columns = setting.data.schema or _unnamed(setting, sample.size)
    reference = sample if target is None else target
    rows = [cells_of(columns, row[None]) for row in (reference, sample, reference)]
    if nearest is not None:
        rows[2] = cells_of(columns, nearest[None])
    right = compare_cells(columns, reference[None], sample[None]).right[0]
    cells = [
        ListedCell(
            column.name + (f" ({column.unit})" if column.unit else ""),
            None if target is None else cell_digits(column, true[0], true[0]),
            cell_digits(column, found[0], true[0]),
            None if nearest is None else cell_digits(column, near[0], true[0]),
            bool(came_out) and target is not None,
            column.given,
        )
        for column, true, found, near, came_out in zip(columns, *rows, right, strict=True)
    ]
    candidates = int(record.stats.get("candidates", 1))
    more = max(0, len(cells) - _COLUMNS)
    return Listed(
        _shown(rank, record), tuple(cells[:_COLUMNS]), target is not None, candidates, more
    )


def _unnamed(setting: Setting, width: int) -> tuple[TableColumn, ...]:
    """Columns of a run that did not keep them, or of records that are no table."""
    names = setting.data.columns or tuple(f"column {place + 1}" for place in range(width))
    return tuple(TableColumn(name, "continuous") for name in names)


def _true(record: Outcome, truth: Truth | None) -> tuple[Array | None, Array | None]:
    index = record.trial.target
    if truth is None or index >= len(truth.targets):
        return None, None
    return truth.targets[index], truth.nearest[index]


def _shown(rank: str, record: Outcome) -> Shown:
    return Shown(
        rank,
        record.trial.target,
        number(record.distance),
        number(record.threshold),
        record.success,
    )
