"""Tables in the report: what came out of each column, and which records are most exposed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from exhume.protocol.arrays import Array
from exhume.report.numbers import NOTHING, counted, listed, number, percent
from exhume.runlog.artefacts import Truth, first_candidates, read_truth
from exhume.runlog.cells import ComparedCells, compare_cells
from exhume.runlog.outcome import Outcome
from exhume.runlog.setting import Setting
from exhume.runlog.store import Store
from exhume.runlog.table_columns import TableColumn, cells_of

_MOST_TARGETS = 1000
"""Targets that the table is made of: each one reads its candidate from disk."""
_MOST_EXPOSED = 10
_MOST_NAMED = 12


@dataclass(frozen=True)
class ColumnLine:
    """One column: how often its cell came out and how far off it was, beside the blind guess.

    ``rare`` counts only the targets with a level that few rows have.
    """

    name: str
    kind: str
    given: bool
    right: str
    off: str
    blind: str
    blind_off: str
    rare: str


@dataclass(frozen=True)
class ExposedRecord:
    """One target: how many of its cells came out, and which of its levels few rows have."""

    target: int
    right: str
    distance: str
    threshold: str
    rare: str


@dataclass(frozen=True)
class TablePart:
    """What one attack rebuilt of a table's columns and records."""

    attack: str
    targets: str
    given: str
    lines: tuple[ColumnLine, ...]
    exposed: tuple[ExposedRecord, ...]
    rare: bool


@dataclass(frozen=True, eq=False)
class _ComparedTargets:
    """The targets on which one attack left a candidate, their cells compared with the truth."""

    records: tuple[Outcome, ...]
    found: ComparedCells

    def on(self, column: int, chosen: Array | None = None) -> str:
        """Return how often a column's cell came out, on some of the targets."""
        right = self.found.right[:, column]
        return _share(right if chosen is None else right[chosen])

    def off(self, column: TableColumn, place: int) -> str:
        """Return the median distance of a column's numbers."""
        errors = self.found.error[:, place]
        errors = errors[~np.isnan(errors)]
        if not len(errors):
            return NOTHING
        unit = "days" if column.kind == "date" else column.unit
        return f"{number(float(np.median(errors)))} {unit}".rstrip()


def table_part(
    store: Store, attacks: Sequence[Outcome], blind: Sequence[Outcome], setting: Setting
) -> TablePart | None:
    """Return what an attack and the blind guess rebuilt; None for anything but a judged table."""
    columns, truth = setting.data.schema, read_truth(store, setting)
    if not columns or truth is None or not attacks:
        return None
    tried = _tried(store, attacks, setting, truth)
    if tried is None:
        return None
    guess = _best_guess(store, blind, setting, truth)
    levels = _rare_levels(columns, truth, tried)
    lines = tuple(_line(i, c, tried, guess, levels[i]) for i, c in enumerate(columns))
    given = [column.name for column in columns if column.given]
    return TablePart(
        attack=attacks[0].trial.attack,
        targets=counted(len(tried.records), "target"),
        given=listed(given[:_MOST_NAMED]) if given else "",
        lines=(*lines, *_label_line(tried, guess)),
        exposed=_exposed(columns, tried, levels),
        rare=any(column.rare for column in columns),
    )


def _best_guess(
    store: Store, blind: Sequence[Outcome], setting: Setting, truth: Truth
) -> _ComparedTargets | None:
    """The blind guess of which most cells are right: without the release, or from what is given."""
    names = dict.fromkeys(r.trial.attack for r in blind)
    alone = ([r for r in blind if r.trial.attack == name] for name in names)
    found = (_tried(store, records, setting, truth) for records in alone)
    return max(
        (one for one in found if one is not None),
        key=lambda one: float(one.found.right.mean()),
        default=None,
    )


def _tried(
    store: Store, records: Sequence[Outcome], setting: Setting, truth: Truth
) -> _ComparedTargets | None:
    ran = [r for r in records if r.ran and r.trial.target < len(truth.targets)][:_MOST_TARGETS]
    samples = first_candidates(store, ran, setting)
    kept = [(r, x) for r, x in zip(ran, samples, strict=True) if x is not None]
    if not kept:
        return None
    targets = truth.targets[[r.trial.target for r, _ in kept]]
    found = compare_cells(setting.data.schema, targets, np.stack([x for _, x in kept]))
    return _ComparedTargets(tuple(r for r, _ in kept), found)


def _rare_levels(
    columns: Sequence[TableColumn], truth: Truth, tried: _ComparedTargets
) -> list[Array]:
    """The level of each tried target where few rows have it, by column; None elsewhere."""
    cells = cells_of(columns, truth.targets[[r.trial.target for r in tried.records]])
    return [
        np.array([cell if cell in column.rare else None for cell in own.tolist()], dtype=object)
        for column, own in zip(columns, cells, strict=True)
    ]


def _line(
    place: int,
    column: TableColumn,
    tried: _ComparedTargets,
    guess: _ComparedTargets | None,
    levels: Array,
) -> ColumnLine:
    return ColumnLine(
        name=column.name,
        kind=column.kind,
        given=column.given,
        right=tried.on(place),
        off=tried.off(column, place),
        blind=NOTHING if guess is None else guess.on(place),
        blind_off=NOTHING if guess is None else guess.off(column, place),
        rare=_added(place, column, tried, levels),
    )


def _added(place: int, column: TableColumn, tried: _ComparedTargets, levels: Array) -> str:
    """Say how often a cell came out at rare levels, and at the others."""
    rare = np.array([level is not None for level in levels], dtype=bool)
    if not column.rare:
        return NOTHING
    if not rare.any():
        return "no target has one"
    right = tried.found.right[:, place]
    text = f"{right[rare].sum()} of {rare.sum()}"
    return text if rare.all() else f"{text}; other levels {right[~rare].sum()} of {(~rare).sum()}"


def _label_line(tried: _ComparedTargets, guess: _ComparedTargets | None) -> tuple[ColumnLine, ...]:
    """The label, where attacks rebuild it."""
    own = _labels(tried)
    if own is None:
        return ()
    blind = None if guess is None else _labels(guess)
    told = NOTHING if blind is None else blind
    return (ColumnLine("label", "", False, own, NOTHING, told, NOTHING, NOTHING),)


def _labels(tried: _ComparedTargets) -> str | None:
    said = [r.label_correct for r in tried.records if r.label_correct is not None]
    return _share(np.array(said)) if said else None


def _exposed(
    columns: Sequence[TableColumn], tried: _ComparedTargets, levels: Sequence[Array]
) -> tuple[ExposedRecord, ...]:
    """The records of which most came out; of equals, the one that came out closest."""
    asked = np.array([not column.given for column in columns])
    right = tried.found.right[:, asked].sum(axis=1)

    def rank(place: int) -> tuple[int, float]:
        record = tried.records[place]
        if record.distance is None or not record.threshold:
            return (-int(right[place]), np.inf)
        return (-int(right[place]), record.distance / record.threshold)

    order = sorted(range(len(tried.records)), key=rank)[:_MOST_EXPOSED]
    return tuple(
        ExposedRecord(
            target=tried.records[place].trial.target,
            right=f"{right[place]} of {asked.sum()}",
            distance=number(tried.records[place].distance),
            threshold=number(tried.records[place].threshold),
            rare=", ".join(
                column.name
                for column, own in zip(columns, levels, strict=True)
                if own[place] is not None
            ),
        )
        for place in order
    )


def _share(right: Array) -> str:
    return f"{percent(float(right.mean()))} ({right.sum()} of {len(right)})"
