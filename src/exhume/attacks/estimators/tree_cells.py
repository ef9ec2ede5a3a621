"""What decision trees determine of the one unknown record: exact values and intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np

from exhume.attacks.estimators.encoded_rows import EncodedRows
from exhume.attacks.estimators.prior_mean import PriorMean
from exhume.attacks.estimators.read_trees import ReleasedTree, paths, read_trees
from exhume.attacks.estimators.refit import FittedRelease, has_trees, read_fitted
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.attack import ParsedAttack, Refusal, ThreatModel, nothing
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.release import Release

_PRECISION = 1e-6
"""Trees compare records in single precision."""
_MIDPOINTS = 0.9
_FEW = 12
"""A column with at most so many different values is a category."""
_SURE = 1e-3
"""A cell that is known exactly weighs as one with this error, in deviations of its column."""


@dataclass(eq=False)
class Cells:
    """What is known of each column: it is in (low, high]; ``exact`` is its value, or NaN."""

    low: FloatArray
    high: FloatArray
    exact: FloatArray

    @classmethod
    def of_nothing(cls, columns: int) -> Cells:
        """Return intervals that say nothing."""
        return cls(*(np.full(columns, value) for value in (-np.inf, np.inf, np.nan)))

    def split(self, column: int, threshold: float, left: bool) -> None:
        """Record on which side of a threshold the column lies."""
        if left:
            self.high[column] = min(self.high[column], threshold)
        else:
            self.low[column] = max(self.low[column], threshold)

    def pin(self, column: int, value: float) -> None:
        """Record a column's exact value; of two values, the first stays."""
        if np.isnan(self.exact[column]) and self.low[column] < value <= self.high[column] + abs(
            value * _PRECISION
        ):
            self.exact[column] = value


@dataclass(frozen=True)
class TreeCells(ParsedAttack[FittedRelease]):
    """Follows the missing record through every released tree, by the counts in its nodes.

    A threshold is the midpoint of two neighbouring values of a column. If no two known values
    explain it, it gives the missing value exactly: 2 · threshold − the known neighbour. Leaves
    limit the other columns to intervals. No search is needed.
    """

    name: ClassVar[str] = "tree-cells"
    made_for: ClassVar[ThreatModel | None] = ThreatModel.ESTIMATOR

    def parse(self, release: Release, knowledge: Knowledge) -> FittedRelease | Refusal:
        """Return why there are no trees to read, or None."""
        read = read_fitted(release, knowledge)
        if isinstance(read, FittedRelease) and not has_trees(read.attributes):
            return Refusal("the release holds no decision trees")
        return read

    def _solve(self, problem: FittedRelease, rng: np.random.Generator) -> Reconstruction:
        encoded = EncodedRows(problem)
        rows = encoded.rows.astype(np.float32).astype(np.float64)
        trees = read_trees(problem.attributes, problem.estimator, problem.known)
        cells = Cells.of_nothing(rows.shape[1])
        walked = [list(paths(tree, rows)) for tree in trees]
        for tree, path in zip(trees, walked, strict=True):
            _bound(cells, tree, path)
        for tree, path in zip(trees, walked, strict=True):
            if tree.midpoints and explained(tree, rows) >= _MIDPOINTS:
                _pin(cells, tree, path, rows)
        for column, value in bin_values(problem.attributes, rows):
            cells.pin(column, value)
        if not np.isfinite([cells.low, cells.high]).any() and np.isnan(cells.exact).all():
            why = "the target took part in no tree, or its path is unknown"
            return nothing(problem.knowledge, Status.NO_INFORMATION, why)
        return _answer(problem, cells, rows, _label(problem, trees), encoded)


def _bound(cells: Cells, tree: ReleasedTree, path: Sequence[tuple[int, Array]]) -> None:
    for (node, _), (after, _) in pairwise(path):
        left = after == tree.left[node]
        cells.split(int(tree.feature[node]), float(tree.threshold[node]), bool(left))


def _pin(
    cells: Cells, tree: ReleasedTree, path: Sequence[tuple[int, Array]], rows: FloatArray
) -> None:
    for (node, inside), (after, _) in pairwise(path):
        column, threshold = int(tree.feature[node]), float(tree.threshold[node])
        values = rows[inside, column]
        below, above = values[values <= threshold], values[values > threshold]
        low = below.max() if len(below) else -np.inf
        high = above.min() if len(above) else np.inf
        if np.isclose((low + high) / 2, threshold, rtol=_PRECISION, atol=0):
            continue
        value = 2 * threshold - (high if after == tree.left[node] else low)
        if np.isfinite(value):
            cells.pin(column, float(value))


def explained(tree: ReleasedTree, rows: FloatArray) -> float:
    """Return the share of splits that are midpoints of known values; it is low in randomised trees.

    Each split is compared with all known records in its node. One missing record changes only the
    splits on its own path.
    """
    todo, right, all_ = [(0, np.flatnonzero(tree.bag[:-1]))], 0, 0
    while todo:
        node, inside = todo.pop()
        if tree.leaf(node):
            continue
        values, threshold = rows[inside, tree.feature[node]], tree.threshold[node]
        goes_left = values <= threshold
        todo += [(int(tree.left[node]), inside[goes_left])]
        todo += [(int(tree.right[node]), inside[~goes_left])]
        if tree.count[node] == len(inside) and goes_left.any() and not goes_left.all():
            middle = (values[goes_left].max() + values[~goes_left].min()) / 2
            right += bool(np.isclose(middle, threshold, rtol=_PRECISION, atol=1e-12))
            all_ += 1
    return right / all_ if all_ else 1.0


def bin_values(attributes: Mapping[str, Array], rows: FloatArray) -> list[tuple[int, float]]:
    """Return (column, value) if the thresholds of a histogram's bins reveal an unknown value.

    Up to 255 different values have one bin each, and the thresholds are the midpoints between them.
    """
    found = []
    for column in range(rows.shape[1]):
        name = f"_bin_mapper.bin_thresholds_.{column}"
        if name not in attributes:
            continue
        thresholds, known = np.asarray(attributes[name]), np.unique(rows[:, column])
        if len(thresholds) != len(known):
            continue
        middles = (known[1:] + known[:-1]) / 2
        place = int(np.argmin(np.isclose(thresholds[: len(middles)], middles, rtol=_PRECISION)))
        if np.isclose(thresholds[:-1], middles, rtol=_PRECISION).all():
            place = len(middles)
        found.append((column, float(2 * thresholds[place] - known[place])))
    return found


def _boosts(problem: FittedRelease) -> bool:
    """Return whether trees were fitted to residuals of the responses, not to the responses."""
    return "boost" in problem.estimator.describe().lower()


def _label(problem: FittedRelease, trees: Sequence[ReleasedTree]) -> object | None:
    """Return the label that the root of a tree shows if the target was in its bag."""
    labels = problem.known.labels
    grown = [tree for tree in trees if tree.bag[-1] and not _boosts(problem)]
    if not grown:
        return None
    tree = grown[0]
    root, weight = np.asarray(tree.value[0], dtype=np.float64).reshape(-1), tree.bag.sum()
    if not problem.estimator.classifies:
        rest = root[0] * weight - np.sum(tree.bag[:-1] * labels)
        return float(rest / tree.bag[-1])
    classes = np.unique(labels)
    counts = np.array([tree.bag[:-1][labels == one].sum() for one in classes])
    found: object = classes[int(np.argmax(root * weight - counts))].item()
    return found


def _answer(
    problem: FittedRelease,
    cells: Cells,
    rows: FloatArray,
    label: object | None,
    encoded: EncodedRows,
) -> Reconstruction:
    low, high = (
        np.clip(side, rows.min(axis=0), rows.max(axis=0)) for side in (cells.low, cells.high)
    )
    pinned = ~np.isnan(cells.exact)
    spread = np.where(rows.std(axis=0) > 0, rows.std(axis=0), 1.0)
    x, own = _filled(problem, rows, low, high, cells.exact, label)
    x = encoded.back(x, spread / np.maximum(own, _SURE * spread))[0]
    status = Status.CONVERGED if pinned.all() else Status.APPROXIMATE
    return Reconstruction(
        x.reshape(1, *problem.knowledge.record_shape),
        status,
        labels=None if label is None else np.asarray([label]),
        confidence=np.asarray([float(pinned.mean())]),
        error_estimate=np.asarray([float(np.sqrt(np.mean(own**2)))]),
        message=f"{int(pinned.sum())} of {len(pinned)} columns exactly, the others by intervals",
        stats={
            "columns found": int(pinned.sum()),
            "interval, in deviations": float(np.mean((high - low)[~pinned] / spread[~pinned]))
            if not pinned.all()
            else 0.0,
        },
    )


def _filled(
    problem: FittedRelease,
    rows: FloatArray,
    low: FloatArray,
    high: FloatArray,
    exact: FloatArray,
    label: object | None,
) -> tuple[FloatArray, FloatArray]:
    """Return the likeliest record in the box (low, high], and each column's deviation.

    Columns of few values take the mean of those in their interval. The others go with them, and
    with what is pinned, as they do in the known records of the same class.
    """
    pinned = ~np.isnan(exact)
    x = np.array([_middle(rows[:, j], low[j], high[j]) for j in range(len(low))])
    x = np.where(pinned, exact, x)
    spread = np.where(rows.std(axis=0) > 0, rows.std(axis=0), 1.0)
    own = np.where(pinned, 0.0, np.minimum((high - low) / np.sqrt(12), spread))
    smooth = np.array([len(np.unique(column)) > _FEW for column in rows.T])
    open_ = smooth & ~pinned
    alike = problem.known.labels == label if problem.estimator.classifies else slice(None)
    like = rows if label is None else rows[alike]
    if not open_.any() or len(like) < 2 * rows.shape[1]:
        return x, own
    ends = [(np.where(open_, side, x) - rows.mean(axis=0)) / spread for side in (low, high)]
    prior = PriorMean.of((like - rows.mean(axis=0)) / spread)
    mean, deviation = prior.within(*ends)
    found = np.where(open_, mean * spread + rows.mean(axis=0), x)
    return found, np.where(open_, deviation * spread, own)


def _middle(values: FloatArray, low: float, high: float) -> float:
    """Return the mean of the known values in an interval, or else its middle."""
    inside = values[(values > low) & (values <= high)]
    return float(inside.mean()) if len(inside) else float((low + high) / 2)
