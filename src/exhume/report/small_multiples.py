"""Small multiples: one target as every attack rebuilt it behind every defence.

Contact sheets: all reconstructions of one target, by attack and defence, in one picture. The page
contains each sheet once, as a background; a tile is shown by its position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from exhume.protocol.arrays import Array
from exhume.report.grids import Grid, GridCell
from exhume.report.numbers import number, short
from exhume.report.png import data_uri, pixels, shrunk, small_png
from exhume.report.tables import status_words
from exhume.runlog.artefacts import Truth, first_candidates, read_truth
from exhume.runlog.outcome import Outcome
from exhume.runlog.setting import Setting

_NO_RUN, _NOTHING_FOUND = "no run", "nothing"


@dataclass(frozen=True)
class Tile:
    """A picture by its classes (empty if there is none), its error, and its description."""

    classes: str
    caption: str
    spoken: str
    ran: bool
    hit: bool


@dataclass(frozen=True)
class Multiple:
    """One target: its original, the nearest known record, and one row of tiles per attack."""

    target: int
    rank: str
    original: str
    nearest: str
    rows: tuple[tuple[str, tuple[Tile, ...]], ...]


def ranked_targets(grid: Grid) -> list[tuple[str, int]]:
    """Return targets with their rank by the strongest attack's error: the median, best and worst.

    The attack is the strongest on the undefended setting; the choice uses nothing else, so that it
    favours no defence.
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


def _tile(grid: Grid, sheets: Sheets, cell: GridCell, row: int, column: int, target: int) -> Tile:
    record = next((r for r in cell.records if r.trial.target == target), None)
    name = f"{cell.attack}, {grid.members[column].label}"
    if record is None:
        return Tile("", _NO_RUN, f"{name}: not run", False, False)
    classes, words = sheets.tile(target, row, column), status_words(record.status)
    if record.distance is None:
        caption = _NOTHING_FOUND if record.ran else _NO_RUN
        return Tile(classes, caption, f"{name}: {words}", record.ran, False)
    said = f"{name}: error {number(record.distance)}"
    if not record.ran:
        said += f", but the attack's status is: {words}"
    return Tile(classes, short(record.distance), said, record.ran, bool(record.success))


def _distance(record: Outcome) -> tuple[float, int]:
    return record.distance or 0.0, record.trial.target


MOST_PIXELS = 2_600_000
"""Pixels in all sheets of a page: at most 3.5 MB, one byte per pixel."""
_SIDE, _LARGE_SIDE = 32, 64
"""The largest side of a tile; the first sheet, which the page shows whole, has larger ones."""


@dataclass(frozen=True)
class Sheets:
    """A grid's sheets: the style that holds them, and which tiles there are.

    Row 0 has the target and its nearest known record; row r + 1 the r-th attack's results.
    """

    name: str
    style: str
    targets: tuple[int, ...]
    tiles: frozenset[tuple[int, int, int]]

    def tile(self, target: int, row: int, column: int) -> str:
        """Return the classes that show what an attack rebuilt; empty if nothing is stored."""
        if (target, row + 1, column) not in self.tiles:
            return ""
        return self._classes(target, row + 1, column)

    def original(self, target: int) -> str:
        """Return the classes that show a target."""
        return self._classes(target, 0, 0) if target in self.targets else ""

    def nearest(self, target: int) -> str:
        """Return the classes that show the nearest record that the adversary had."""
        return self._classes(target, 0, 1) if target in self.targets else ""

    def _classes(self, target: int, row: int, column: int) -> str:
        return f"tile {self.name} {self.name}t{target} {self.name}r{row} {self.name}c{column}"


def sheets(grid: Grid, wanted: Sequence[int], name: str, most_pixels: int) -> Sheets | None:
    """Return the sheets of as many of the ``wanted`` targets as ``most_pixels`` allow.

    None if records are not pictures, or if no artefact is left to show.
    """
    base = grid.base.case
    truth = read_truth(base.store, base.setting)
    if not base.setting.data.picture or truth is None or not wanted:
        return None
    first = wanted[0]
    tiles = _tiles(grid, truth)
    small, large = (_pixels_a_sheet(grid, base.setting, side) for side in (_SIDE, _LARGE_SIDE))
    kept = list(wanted[: 1 + max(0, most_pixels - large) // small])
    kept = [target for target in kept if target < len(truth.targets)]
    images = {
        target: _sheet(grid, target, truth, tiles, _LARGE_SIDE if target == first else _SIDE)
        for target in kept
    }
    found = frozenset((t, r + 1, c) for r, c, t in tiles if t in images)
    return Sheets(name, _style(name, grid, base.setting, images), tuple(kept), found)


def _tiles(grid: Grid, truth: Truth) -> dict[tuple[int, int, int], Array]:
    """What was rebuilt, by attack, member and target, of members that have the same targets."""
    found = {}
    for column, member in enumerate(grid.members):
        case = member.case
        own = truth if column == 0 else read_truth(case.store, case.setting)
        if (
            own is None
            or case.setting.data.record_shape != grid.base.case.setting.data.record_shape
        ):
            continue
        for row, cell in enumerate(grid.column(column)):
            samples = first_candidates(case.store, cell.records, case.setting)
            for record, sample in zip(cell.records, samples, strict=True):
                target = record.trial.target
                if sample is not None and _same(truth, own, target):
                    found[row, column, target] = sample
    return found


def _same(one: Truth, other: Truth, target: int) -> bool:
    if one is other:
        return target < len(one.targets)
    both = min(len(one.targets), len(other.targets))
    return target < both and np.array_equal(one.targets[target], other.targets[target])


def _sheet(
    grid: Grid, target: int, truth: Truth, tiles: dict[tuple[int, int, int], Array], side: int
) -> NDArray[np.uint8]:
    seen = truth.targets[target]
    span = grid.base.case.setting.data.value_range or (float(seen.min()), float(seen.max()))
    shown = {(0, 0): seen, (0, 1): truth.nearest[target]}
    for row in range(len(grid.attacks)):
        for column in range(len(grid.members)):
            if (sample := tiles.get((row, column, target))) is not None:
                shown[row + 1, column] = sample
    small = shrunk(seen, side)
    height, width = small.shape[:2]
    size = ((len(grid.attacks) + 1) * height, len(grid.members) * width, *small.shape[2:])
    sheet = np.zeros(size, dtype=np.uint8)
    for (row, column), record in shown.items():
        at = np.s_[row * height : (row + 1) * height, column * width : (column + 1) * width]
        sheet[at] = pixels(shrunk(record, side), span)
    return sheet


def _pixels_a_sheet(grid: Grid, setting: Setting, side: int) -> int:
    height, width = shrunk(np.zeros(setting.data.record_shape), side).shape[:2]
    return int((len(grid.attacks) + 1) * len(grid.members) * height * width)


def _style(name: str, grid: Grid, setting: Setting, images: dict[int, NDArray[np.uint8]]) -> str:
    """Places are in em, so that the size of the font is the width of a tile."""
    tall = round(setting.data.record_shape[0] / setting.data.record_shape[1], 4)
    columns, rows = len(grid.members), len(grid.attacks) + 1
    size = f"height:{tall:g}em;background-size:{columns}em {rows * tall:g}em"
    rules = [f".{name}{{{size}}}"]
    rules += [f".{name}c{c}{{background-position-x:-{c}em}}" for c in range(columns)]
    rules += [f".{name}r{r}{{background-position-y:-{r * tall:g}em}}" for r in range(rows)]
    rules += [
        f'.{name}t{target}{{background-image:url("{data_uri(small_png(image))}")}}'
        for target, image in images.items()
    ]
    return "\n".join(rules)
