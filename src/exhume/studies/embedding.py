"""Released models as points in the plane, coloured by their targets' labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.audit import make_plan
from exhume.release import Weights
from exhume.studies.base import Embedding, Part, Scale
from exhume.studies.run import Run


def draw_embedding(part: Part, run: Run, path: Path) -> bool:
    """Publish a part's models again, one a target, and draw their t-SNE; say whether there is one.

    As in Balle et al. 2022, Figure 8. The weights are those that the run's own settings publish.
    """
    if part.embedding is None:
        return False
    own = part.size(Scale(run.scale), run.changes)
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
