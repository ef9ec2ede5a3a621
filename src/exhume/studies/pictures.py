"""Pictures of a study: targets, reconstructions, and the nearest known records.

Released models as points in the plane, coloured by their targets' labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from exhume.audit import make_plan
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.release import Weights
from exhume.report.png import pixels, png
from exhume.runlog.artefacts import first_candidates, read_truth
from exhume.runlog.outcome import Outcome
from exhume.runlog.run import Run
from exhume.runlog.store import Store
from exhume.studies.part import Embedding, Part, Picture
from exhume.studies.reading import StudyRun

_SHOWN = 6
_MAGNIFIED = 2
_LEAST = 56
"""A tile's side has at least as many pixels."""
_GAP = 2


def draw(part: Part[Any], folder: Path, figures: Path) -> list[Path]:
    """Draw a part's pictures from its run folder; only for public data sets."""
    written = []
    with Store.open(folder) as store:
        run = store.run()
        for index, picture in enumerate(part.pictures):
            tiles = _tiles(picture, store, run)
            if not tiles:
                continue
            path = figures / f"{part.paper}-{part.name}-{index}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(png(_sheet(tiles)))
            written.append(path)
    return written


def _tiles(picture: Picture, store: Store, run: Run) -> list[list[Array]]:
    """Return a row per target: the target, each attack's answer, the nearest known record."""
    rows: list[list[Array]] = []
    known = {setting.name: setting for setting in run.settings if setting.data.picture}
    for setting in (known[name] for name in picture.settings if name in known):
        truth = read_truth(store, setting)
        if truth is None:
            continue
        mine = [*run.of(setting.name), *run.of(picture.beside)]
        for target in _chosen(picture, mine):
            row = [truth.targets[target]]
            for attack in picture.attacks:
                own = [r for r in mine if r.trial.attack == attack and r.trial.target == target]
                (sample,) = first_candidates(store, own, setting) if own else (None,)
                row.append(np.zeros_like(row[0]) if sample is None else sample)
            row.append(truth.nearest[target])
            rows.append([pixels(tile, setting.data.value_range or (0.0, 1.0)) for tile in row])
    return rows


def _chosen(picture: Picture, outcomes: Sequence[Outcome]) -> list[int]:
    own = [r for r in outcomes if r.trial.attack == picture.attacks[0]]
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


def draw_embedding(part: Part[Any], run: StudyRun, path: Path) -> bool:
    """Publish a part's models again, one per target, and draw their t-SNE, if there is one.

    As in Balle et al. 2022, Figure 8. The weights are those that the run's own settings publish.
    """
    if part.embedding is None:
        return False
    own = part.size_of(run)
    wanted = part.embedding(own)
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    size = replace(own, targets=wanted.count)
    plan = make_plan(part.config(size, seed=run.seed))
    names = [table.name for table in plan.config.setting]
    with mpl.rc_context():
        mpl.rcdefaults()
        width = 2.2 * len(wanted.settings)
        canvas = FigureCanvasAgg(Figure(figsize=(width, 2.7), layout="constrained"))
        panels = canvas.figure.subplots(1, len(wanted.settings), squeeze=False)[0]
        for axes, name in zip(panels, wanted.settings, strict=True):
            weights, labels = _released(plan, names.index(name), wanted, run.seed)
            _paint(axes, _embedded(weights), labels, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        canvas.print_figure(path, dpi=80, metadata={"Software": None})
    return True


def _released(plan: Any, index: int, wanted: Embedding, seed: int) -> tuple[FloatArray, Array]:
    setting = plan.setting(index)
    groups = setting.groups(range(wanted.count))
    rows = [
        np.concatenate([np.ravel(values) for values in release.parameters.values()])
        for release in setting.releases(groups, seed)
        if isinstance(release, Weights)
    ]
    return np.asarray(rows, dtype=np.float64), setting.targets.labels[: wanted.count]


def _embedded(weights: FloatArray) -> FloatArray:
    from sklearn.manifold import TSNE

    centred = weights - weights.mean(axis=0)
    size = float(np.sqrt(np.square(centred).mean())) or 1.0
    found = TSNE(perplexity=min(20.0, len(weights) / 4), init="pca", random_state=0)
    return np.asarray(found.fit_transform(centred / size), dtype=np.float64)


def _paint(axes: Any, points: FloatArray, labels: Array, title: str) -> None:
    colours = np.searchsorted(np.unique(labels), labels)
    axes.scatter(points[:, 0], points[:, 1], c=colours, cmap="tab10", s=9, linewidths=0)
    axes.set_title(title.replace(", ", "\n"), fontsize=8)
    axes.set_xticks(())
    axes.set_yticks(())
