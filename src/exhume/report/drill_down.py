"""From a cell of a grid to its trials: target, status, error, picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from exhume.report.grids import Grid, GridCell
from exhume.report.heat_map import cell_anchor, outcome_text
from exhume.report.numbers import NOTHING, number, short
from exhume.report.small_multiples import Sheets
from exhume.report.tables import message_text, status_words
from exhume.runlog.outcome import Outcome

MOST = 2400
"""The number of trials in the drill-downs of a page."""
_LEAST = 3
"""Trials per cell, for any number of cells."""


@dataclass(frozen=True)
class Tried:
    """One trial of a cell; ``original`` and ``rebuilt`` are classes of tiles, or empty."""

    target: int
    status: str
    ran: bool
    error: str
    threshold: str
    psnr: str
    success: str
    original: str
    rebuilt: str


@dataclass(frozen=True)
class CellTrials:
    """A cell's trials: those that are shown, and the total number."""

    anchor: str
    attack: str
    defence: str
    outcome: str
    said: str
    message: str
    rows: tuple[Tried, ...]
    total: int


@dataclass(frozen=True)
class ColumnTrials:
    """All cells of one member."""

    defence: str
    anchor: str
    said: str
    cells: tuple[CellTrials, ...]


def drill_down(
    grid: Grid,
    sheets: Sheets | None,
    first: Sequence[int],
    anchor: str,
    *,
    redact: bool,
    most: int,
) -> tuple[ColumnTrials, ...]:
    """Return the trials of every cell; targets ``first`` come first if not all are shown."""
    filled = sum(bool(cell.records) for row in grid.cells for cell in row)
    limit = max(_LEAST, most // max(filled, 1))
    found = []
    for column, member in enumerate(grid.members):
        cells = []
        for row, cell in enumerate(grid.column(column)):
            kept = _kept(cell.records, first, limit)
            cells.append(
                CellTrials(
                    anchor=cell_anchor(anchor, row, column),
                    attack=cell.attack,
                    defence=member.label,
                    outcome=outcome_text(cell.records),
                    said=_said(cell),
                    message=_message(cell, redact=redact),
                    rows=tuple(_tried(record, sheets, row, column) for record in kept),
                    total=len(cell.records),
                )
            )
        found.append(
            ColumnTrials(
                member.label,
                member.anchor,
                _strongest(grid.decisive(column)),
                tuple(cells),
            )
        )
    return tuple(found)


def _kept(records: Sequence[Outcome], first: Sequence[int], limit: int) -> list[Outcome]:
    order = sorted(records, key=lambda r: (r.trial.target not in first, r.trial.target))
    return sorted(order[:limit], key=lambda record: record.trial.target)


def _strongest(cell: GridCell | None) -> str:
    if cell is None or cell.error is None:
        return "no attack finished"
    return f"strongest: {cell.attack}, {short(cell.error)}"


def _said(cell: GridCell) -> str:
    return "no error measured" if cell.error is None else f"mean error {short(cell.error)}"


def _message(cell: GridCell, *, redact: bool) -> str:
    """The attack's message for trials in which it did not run; for others the numbers suffice."""
    failed = next((r for r in cell.records if not r.ran), None)
    if failed is None:
        return ""
    return message_text(failed.message, failed.status == "CRASHED", redact=redact)


def _tried(record: Outcome, sheets: Sheets | None, row: int, column: int) -> Tried:
    target = record.trial.target
    psnr = record.scores.get("psnr")
    return Tried(
        target=target,
        status=status_words(record.status),
        ran=record.ran,
        error=number(record.distance),
        threshold=number(record.threshold),
        psnr=NOTHING if psnr is None else f"{psnr:.1f}",
        success=_success(record),
        original="" if sheets is None else sheets.original(target),
        rebuilt="" if sheets is None else sheets.tile(target, row, column),
    )


def _success(record: Outcome) -> str:
    if record.success is None:
        return "not judged"
    if record.success:
        return "rebuilt"
    return "no" if record.ran else "did not finish"
