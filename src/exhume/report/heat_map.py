"""The heat map attack × defence: the mean error in every cell, or why there is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from exhume.protocol.reconstruction import Status
from exhume.report.grids import Grid, GridCell
from exhume.report.numbers import counted, listed, number, short
from exhume.report.tables import status_words
from exhume.runlog.outcome import Outcome

SHADES = 9
"""Eight equal steps from an error of zero to a blind guess's, and one for all larger errors."""


@dataclass(frozen=True)
class HeatCell:
    """One cell: its shade from 0 (rebuilt) to SHADES − 1 (no better than a blind guess).

    ``kind`` is "measured", "silent" (the attack ran and returned nothing) or "unknown" (it did not
    finish, which is no evidence of safety whatever its error).
    """

    anchor: str
    kind: str
    shade: int
    error: str
    psnr: str
    note: str
    strongest: bool
    spoken: str

    @property
    def partly(self) -> bool:
        """Whether the attack finished on some targets only."""
        return self.kind == "measured" and self.note != ""


@dataclass(frozen=True)
class HeatRow:
    """One attack."""

    attack: str
    baseline: bool
    cells: tuple[HeatCell, ...]


@dataclass(frozen=True)
class HeatMap:
    """The whole map; ``columns`` are pairs of a defence and its setting's anchor."""

    columns: tuple[tuple[str, str], ...]
    rows: tuple[HeatRow, ...]
    scale: tuple[str, ...]
    reference: str
    decibels: bool
    unit: str

    @property
    def kinds(self) -> set[str]:
        """The kinds of cells there are."""
        found = {cell.kind for row in self.rows for cell in row.cells}
        some = any(cell.partly for row in self.rows for cell in row.cells)
        return found | ({"partly"} if some else set())


def heat_map(grid: Grid, anchor: str) -> HeatMap:
    """Return a grid's map; its cells lead to ``anchor`` with their row and column.

    In each column the attack that sets the defence's strength is marked.
    """
    reference, named = _reference(grid)
    strongest = [grid.decisive(place) for place in range(len(grid.members))]
    rows = tuple(
        HeatRow(
            attack,
            any(cell.baseline for cell in row),
            tuple(
                _cell(
                    cell,
                    f"{attack}, {grid.members[c].label}",
                    cell_anchor(anchor, r, c),
                    reference,
                    strongest=cell is strongest[c],
                )
                for c, cell in enumerate(row)
            ),
        )
        for r, (attack, row) in enumerate(zip(grid.attacks, grid.cells, strict=True))
    )
    return HeatMap(
        columns=tuple((member.label, member.anchor) for member in grid.members),
        rows=rows,
        scale=tuple(short(reference * step / (SHADES - 1)) for step in range(SHADES)),
        reference=named,
        decibels=any(cell.psnr for row in rows for cell in row.cells),
        unit=grid.base.case.setting.data.unit,
    )


def cell_anchor(anchor: str, row: int, column: int) -> str:
    """Return the anchor of a cell's trials in the page."""
    return f"{anchor}-{row}-{column}"


def shade(error: float, reference: float) -> int:
    """Return the shade of a cell, from dark to light.

    >>> shade(0.0, 0.4), shade(0.21, 0.4), shade(0.39, 0.4), shade(0.4, 0.4), shade(7.0, 0.4)
    (0, 4, 7, 8, 8)
    """
    if error >= reference:
        return SHADES - 1
    return int((SHADES - 1) * error / reference)


def outcome_text(records: Sequence[Outcome]) -> str:
    """Return how trials ended, the most frequent status first.

    >>> outcome_text([])
    'not run'
    """
    counts = Counter(record.status for record in records).most_common()
    if not counts:
        return "not run"
    if len(counts) == 1:
        return status_words(counts[0][0])
    return listed([f"{status_words(status)} × {count}" for status, count in counts])


def _reference(grid: Grid) -> tuple[float, str]:
    """The error that is no leak: the blind guess's without a defence, or else the largest."""
    guesses = [c.error for c in grid.column(0) if c.baseline and c.error]
    if guesses:
        return min(guesses), "a blind guess's error"
    errors = [cell.error for row in grid.cells for cell in row if cell.error]
    return max(errors, default=1.0), "the largest error here"


def _cell(cell: GridCell, name: str, anchor: str, reference: float, *, strongest: bool) -> HeatCell:
    kind = "measured" if cell.ran and cell.error is not None else "unknown"
    if _silent(cell):
        kind = "silent"
    partly = f"{cell.ran} of {len(cell.records)} ran" if cell.ran < len(cell.records) else ""
    return HeatCell(
        anchor=anchor,
        kind=kind,
        shade=0 if cell.error is None else shade(cell.error, reference),
        error="" if cell.error is None else short(cell.error),
        psnr="" if cell.psnr is None else f"{cell.psnr:.1f}",
        note=partly if kind == "measured" else outcome_text(cell.records),
        strongest=strongest,
        spoken=_spoken(cell, name, kind, strongest=strongest),
    )


def _silent(cell: GridCell) -> bool:
    """Whether the attack ran in every trial, and reported that it found no information."""
    return bool(cell.records) and all(r.status == Status.NO_INFORMATION.name for r in cell.records)


def _spoken(cell: GridCell, name: str, kind: str, *, strongest: bool) -> str:
    parts = []
    if cell.error is not None:
        parts += [f"mean error {number(cell.error)} on {counted(len(cell.judged), 'target')}"]
        parts += [] if cell.psnr is None else [f"PSNR {cell.psnr:.1f} dB"]
        parts += [f"{sum(bool(r.success) for r in cell.judged)} rebuilt"]
    if kind == "silent":
        parts.append("found no information")
    elif cell.ran < len(cell.records) or not cell.records:
        failed = [record for record in cell.records if not record.ran]
        some = f" on {len(failed)}" if cell.ran else ""
        parts.append(f"{outcome_text(failed)}{some}, which is no evidence of safety")
    parts += ["the strongest attack on this defence"] * strongest
    return f"{name}: {', '.join(parts)}"
