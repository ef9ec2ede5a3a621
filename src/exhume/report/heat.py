"""The heat map attack × defence: the mean error in every cell, and what an empty one means."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from exhume.audit.tradeoff import Tradeoff
from exhume.reconstruction import Status
from exhume.report.attacks import status_words
from exhume.report.grids import Cell, Grid
from exhume.report.words import counted, listed, number, short

SHADES = 9
"""Eight equal steps from an error of nothing to a blind guess's, and one for all beyond."""


@dataclass(frozen=True)
class HeatCell:
    """One cell: its shade from 0 (rebuilt) to SHADES − 1 (no better than a blind guess).

    ``kind`` is "measured", "silent" (the attack ran and returned nothing) or "unknown" (it did not
    run, which is no evidence of anything).
    """

    anchor: str
    kind: str
    shade: int
    error: str
    psnr: str
    note: str
    strongest: bool
    spoken: str


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


def heat_map(grid: Grid, anchor: str, tradeoff: Tradeoff | None = None) -> HeatMap:
    """Return a grid's map; its cells lead to ``anchor`` with their row and column.

    In each column the attack that sets the defence's strength in ``tradeoff`` is marked.
    """
    reference, named = _reference(grid)
    strongest = [grid.decisive(place, tradeoff) for place in range(len(grid.members))]
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
        unit=grid.base.case.facts.unit,
    )


def cell_anchor(anchor: str, row: int, column: int) -> str:
    """Return where the page has the trials of a cell."""
    return f"{anchor}-{row}-{column}"


def shade(error: float, reference: float) -> int:
    """Return how light a cell is.

    >>> shade(0.0, 0.4), shade(0.21, 0.4), shade(0.39, 0.4), shade(0.4, 0.4), shade(7.0, 0.4)
    (0, 4, 7, 8, 8)
    """
    if error >= reference:
        return SHADES - 1
    return int((SHADES - 1) * error / reference)


def outcome_text(cell: Cell) -> str:
    """Return how a cell's trials ended, the commonest way first.

    >>> outcome_text(Cell("glm", ()))
    'not run'
    """
    counts = Counter(record.status for record in cell.records).most_common()
    if not counts:
        return "not run"
    if len(counts) == 1:
        return status_words(counts[0][0])
    return listed([f"{status_words(status)} × {count}" for status, count in counts])


def _reference(grid: Grid) -> tuple[float, str]:
    """What counts as no leak: the blind guess's error without a defence, or else the largest."""
    guesses = [c.error for c in grid.column(0) if c.baseline and c.error]
    if guesses:
        return min(guesses), "a blind guess's error"
    errors = [cell.error for row in grid.cells for cell in row if cell.error]
    return max(errors, default=1.0), "the largest error here"


def _cell(cell: Cell, name: str, anchor: str, reference: float, *, strongest: bool) -> HeatCell:
    if cell.error is None:
        kind = "silent" if _silent(cell) else "unknown"
        words = outcome_text(cell)
        spoken = f"{name}: {words}; {_meaning(kind)}"
        return HeatCell(anchor, kind, 0, "", "", words, False, spoken)
    psnr = "" if cell.psnr is None else f"{cell.psnr:.1f}"
    missing = len(cell.records) - len(cell.judged)
    note = f"{len(cell.judged)} of {len(cell.records)}" if missing else ""
    return HeatCell(
        anchor=anchor,
        kind="measured",
        shade=shade(cell.error, reference),
        error=short(cell.error),
        psnr=psnr,
        note=note,
        strongest=strongest,
        spoken=_spoken(cell, name, psnr, missing, strongest=strongest),
    )


def _silent(cell: Cell) -> bool:
    """Whether the attack ran in every trial, found nothing to go by, and said so."""
    return bool(cell.records) and all(r.status == Status.NO_INFORMATION.name for r in cell.records)


def _meaning(kind: str) -> str:
    return "it ran and found nothing" if kind == "silent" else "this says nothing about safety"


def _spoken(cell: Cell, name: str, psnr: str, missing: int, *, strongest: bool) -> str:
    assert cell.error is not None
    parts = [f"{name}: mean error {number(cell.error)} on {counted(len(cell.judged), 'target')}"]
    hits = sum(bool(r.success) for r in cell.judged)
    parts += [f"PSNR {psnr} dB"] * bool(psnr) + [f"{hits} rebuilt"]
    if missing:
        parts.append(f"no result on {missing}, of which nothing is known ({outcome_text(cell)})")
    parts += ["the strongest attack on this defence"] * strongest
    return ", ".join(parts)
