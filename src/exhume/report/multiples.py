"""Small multiples: one target as every attack rebuilt it behind every defence."""

from __future__ import annotations

from dataclasses import dataclass

from exhume.audit.record import Record
from exhume.audit.summary import ran
from exhume.report.attacks import status_words
from exhume.report.grids import Cell, Grid
from exhume.report.sheets import Sheets
from exhume.report.words import number, short

_NO_RUN, _NOTHING_FOUND = "no run", "nothing"


@dataclass(frozen=True)
class Tile:
    """A picture by its classes (empty: there is none), its error, and what it is in words."""

    classes: str
    caption: str
    spoken: str
    ran: bool
    hit: bool


@dataclass(frozen=True)
class Multiple:
    """One target: its original, the nearest known record, and a row of tiles an attack."""

    target: int
    rank: str
    original: str
    nearest: str
    rows: tuple[tuple[str, tuple[Tile, ...]], ...]


def ranked_targets(grid: Grid) -> list[tuple[str, int]]:
    """Return targets with their rank by the strongest attack's error: the median, best and worst.

    The attack is the strongest on the undefended setting; the choice looks at nothing else, so
    that no defence is shown at its best.
    """
    strongest = next(filter(None, map(grid.strongest, range(len(grid.members)))), None)
    if strongest is None:
        return []
    order = [r.trial.target for r in sorted(strongest.judged, key=_distance)]
    chosen = {"median": order[(len(order) - 1) // 2], "best": order[0], "worst": order[-1]}
    found: dict[int, str] = {}
    for rank, target in chosen.items():
        found.setdefault(target, rank)
    return [(rank, target) for target, rank in found.items()]


def multiples(grid: Grid, sheets: Sheets) -> tuple[Multiple, ...]:
    """Return the small multiples of the ranked targets."""
    return tuple(
        Multiple(
            target=target,
            rank=rank,
            original=sheets.original(target),
            nearest=sheets.nearest(target),
            rows=tuple(
                (
                    attack,
                    tuple(_tile(grid, sheets, cell, r, c, target) for c, cell in enumerate(row)),
                )
                for r, (attack, row) in enumerate(zip(grid.attacks, grid.cells, strict=True))
            ),
        )
        for rank, target in ranked_targets(grid)
        if target in sheets.targets
    )


def _tile(grid: Grid, sheets: Sheets, cell: Cell, row: int, column: int, target: int) -> Tile:
    record = next((r for r in cell.records if r.trial.target == target), None)
    name = f"{cell.attack}, {grid.members[column].label}"
    if record is None:
        return Tile("", _NO_RUN, f"{name}: not run", False, False)
    classes, words = sheets.tile(target, row, column), status_words(record.status)
    if record.distance is None:
        caption = _NOTHING_FOUND if ran(record) else _NO_RUN
        return Tile(classes, caption, f"{name}: {words}", ran(record), False)
    said = f"{name}: error {number(record.distance)}"
    if not ran(record):
        said += f", but the attack ended as: {words}"
    return Tile(classes, short(record.distance), said, ran(record), bool(record.success))


def _distance(record: Record) -> tuple[float, int]:
    return record.distance or 0.0, record.trial.target
