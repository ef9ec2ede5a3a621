"""A grid's part of the report: the map, the trade-off, the pictures, and the trials behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from exhume.report.drill_down import MOST, ColumnTrials, drill_down
from exhume.report.grids import Grid
from exhume.report.heat_map import HeatMap, heat_map
from exhume.report.small_multiples import (
    MOST_PIXELS,
    Multiple,
    Sheets,
    multiples,
    ranked_targets,
    sheets,
)
from exhume.report.tradeoffs import TradeoffPart, answer, cautions, tradeoff_part
from exhume.runlog.tradeoff import Tradeoff


@dataclass(frozen=True)
class GridPart:
    """One grid as the page shows it; ``style`` holds its pictures."""

    anchor: str
    name: str
    title: str
    answer: str
    caution: str
    heat: HeatMap
    tradeoffs: tuple[TradeoffPart, ...]
    multiples: tuple[Multiple, ...]
    shown_by: str
    columns: tuple[ColumnTrials, ...]
    trials: int
    pictured: int
    targets: int
    refused: tuple[str, ...]
    style: str

    @property
    def wide(self) -> bool:
        """Whether the columns are too many for horizontal names."""
        return len(self.heat.columns) > 8


def grid_parts(
    grids: Sequence[Grid], tradeoffs: Sequence[Tradeoff], *, redact: bool
) -> tuple[GridPart, ...]:
    """Return the parts of all grids, which share the space for pictures and trials."""
    return tuple(
        _part(
            grid,
            [t for t in tradeoffs if t.group == grid.name],
            place,
            redact=redact,
            share=len(grids),
        )
        for place, grid in enumerate(grids)
    )


def _part(
    grid: Grid, tradeoffs: Sequence[Tradeoff], place: int, *, redact: bool, share: int
) -> GridPart:
    anchor = f"grid-{place}"
    ranked = [target for _, target in ranked_targets(grid)]
    every = sorted({r.trial.target for row in grid.cells for cell in row for r in cell.records})
    wanted = [*ranked, *(target for target in every if target not in ranked)]
    pictures: Sheets | None = None
    if not redact:
        pictures = sheets(grid, wanted, f"g{place}", MOST_PIXELS // share)
    main = tradeoffs[0] if tradeoffs else None
    columns = drill_down(grid, pictures, ranked, anchor, redact=redact, most=MOST // share)
    return GridPart(
        anchor=anchor,
        name=grid.name,
        title=grid.title,
        answer="" if main is None else answer(main),
        caution="" if main is None else cautions(main),
        heat=heat_map(grid, anchor),
        tradeoffs=tuple(tradeoff_part(one) for one in tradeoffs),
        multiples=() if pictures is None else multiples(grid, pictures),
        shown_by=_shown_by(grid),
        columns=columns,
        trials=sum(len(cell.records) for row in grid.cells for cell in row),
        pictured=0 if pictures is None else len(pictures.targets),
        targets=len(every),
        refused=grid.refused,
        style="" if pictures is None else pictures.style,
    )


def _shown_by(grid: Grid) -> str:
    """The attack whose errors ranked the targets that are shown."""
    found = (grid.strongest(place) for place in range(len(grid.members)))
    return next((cell.attack for cell in found if cell is not None), "")
