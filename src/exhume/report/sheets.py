"""Contact sheets: what every attack on every defence rebuilt of one target, as one picture.

A sheet stands in the page once, as a background; a tile of it is shown by its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from exhume.arrays import Array
from exhume.report.evidence import Truth, first_candidates, read_truth
from exhume.report.facts import Facts
from exhume.report.grids import Grid
from exhume.report.pictures import data_uri, pixels, shrunk, small_png

MOST_PIXELS = 2_600_000
"""Of all sheets of a page: 3.5 MB at worst, a byte a pixel."""
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
        """Return the classes that show what an attack rebuilt; empty where nothing is kept."""
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

    None where records are no pictures, or where nothing of them is left to show.
    """
    base = grid.base.case
    truth = read_truth(base.store, base.facts)
    if not base.facts.picture or truth is None or not wanted:
        return None
    first = wanted[0]
    tiles = _tiles(grid, truth)
    small, large = (_pixels_a_sheet(grid, base.facts, side) for side in (_SIDE, _LARGE_SIDE))
    kept = list(wanted[: 1 + max(0, most_pixels - large) // small])
    kept = [target for target in kept if target < len(truth.targets)]
    images = {
        target: _sheet(grid, target, truth, tiles, _LARGE_SIDE if target == first else _SIDE)
        for target in kept
    }
    found = frozenset((t, r + 1, c) for r, c, t in tiles if t in images)
    return Sheets(name, _style(name, grid, base.facts, images), tuple(kept), found)


def _tiles(grid: Grid, truth: Truth) -> dict[tuple[int, int, int], Array]:
    """What was rebuilt, by attack, member and target, of members that have the same targets."""
    found = {}
    for column, member in enumerate(grid.members):
        case = member.case
        own = truth if column == 0 else read_truth(case.store, case.facts)
        if own is None or case.facts.record_shape != grid.base.case.facts.record_shape:
            continue
        for row, cell in enumerate(grid.column(column)):
            samples = first_candidates(case.store, cell.records, case.facts)
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
    span = grid.base.case.facts.value_range or (float(seen.min()), float(seen.max()))
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


def _pixels_a_sheet(grid: Grid, facts: Facts, side: int) -> int:
    height, width = shrunk(np.zeros(facts.record_shape), side).shape[:2]
    return int((len(grid.attacks) + 1) * len(grid.members) * height * width)


def _style(name: str, grid: Grid, facts: Facts, images: dict[int, NDArray[np.uint8]]) -> str:
    """Places are in em, so that the size of the font is the width of a tile."""
    tall = round(facts.record_shape[0] / facts.record_shape[1], 4)
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
