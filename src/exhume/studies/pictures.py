"""Pictures of a study: targets, what attacks rebuilt, and the nearest known records."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from exhume.arrays import Array
from exhume.audit.record import Record
from exhume.audit.store import Store
from exhume.report.evidence import first_candidates, read_truth
from exhume.report.facts import Facts, read_facts
from exhume.report.pictures import pixels, png
from exhume.studies.base import Part, Picture

_SHOWN = 6
_MAGNIFIED = 2
_LEAST = 56
"""A tile's side has at least as many pixels."""
_GAP = 2


def draw(part: Part, folder: Path, figures: Path) -> list[Path]:
    """Draw a part's pictures from its run folder; only public data sets have any."""
    written = []
    with Store.open(folder) as store:
        facts = {name: read_facts(plain) for name, plain in store.facts().items()}
        for index, picture in enumerate(part.pictures):
            tiles = _tiles(picture, store, facts)
            if not tiles:
                continue
            path = figures / f"{part.paper}-{part.name}-{index}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(png(_sheet(tiles)))
            written.append(path)
    return written


def _tiles(picture: Picture, store: Store, facts: dict[str, Facts]) -> list[list[Array]]:
    """Return a row a target: the target, each attack's answer, the nearest known record."""
    rows: list[list[Array]] = []
    for name in picture.settings:
        if name not in facts or not facts[name].picture:
            continue
        fact, truth = facts[name], read_truth(store, facts[name])
        if truth is None:
            continue
        mine = [r for r in store.records() if r.trial.setting == name]
        for target in _chosen(picture, mine):
            row = [truth.targets[target]]
            for attack in picture.attacks:
                own = [r for r in mine if r.trial.attack == attack and r.trial.target == target]
                (sample,) = first_candidates(store, own, fact) if own else (None,)
                row.append(np.zeros_like(row[0]) if sample is None else sample)
            row.append(truth.nearest[target])
            rows.append([pixels(tile, fact.value_range or (0.0, 1.0)) for tile in row])
    return rows


def _chosen(picture: Picture, records: list[Record]) -> list[int]:
    own = [r for r in records if r.trial.attack == picture.attacks[0]]
    if picture.order == "first":
        return sorted(r.trial.target for r in own)[:_SHOWN]
    ranked = sorted(own, key=lambda r: (r.distance is None, r.distance, r.trial.target))
    return [r.trial.target for r in (*ranked[:_SHOWN], *ranked[-_SHOWN:])]


def _sheet(rows: list[list[Array]]) -> Array:
    """Lay tiles out, targets side by side, magnified, on white."""
    times = max(_MAGNIFIED, -(-_LEAST // min(rows[0][0].shape[:2])))
    height, width = (side * times + _GAP for side in rows[0][0].shape[:2])
    channels = rows[0][0].shape[2:]
    shape = (height * len(rows[0]) + _GAP, width * len(rows) + _GAP, *channels)
    sheet = np.full(shape, 255, dtype=np.uint8)
    for column, tiles in enumerate(rows):
        for line, tile in enumerate(tiles):
            large = tile.repeat(times, axis=0).repeat(times, axis=1)
            top, left = _GAP + line * height, _GAP + column * width
            sheet[top : top + large.shape[0], left : left + large.shape[1]] = large
    return sheet
