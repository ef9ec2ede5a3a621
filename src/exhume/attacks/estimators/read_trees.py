"""The decision trees of a release as arrays of nodes, and the records in each tree's bag."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.records import Records
from exhume.training.estimator import Estimator

_LEAF = -1


@dataclass(frozen=True, eq=False)
class ReleasedTree:
    """Nodes of a tree: a record goes ``left`` if its ``feature`` is at most ``threshold``.

    ``count`` is the number of different records that reached each node in training. ``bag`` is how
    often each record took part; the target is the last.
    """

    path: str
    feature: Array
    threshold: FloatArray
    left: Array
    right: Array
    count: Array
    value: FloatArray
    bag: Array
    midpoints: bool = True
    """Whether a threshold is the midpoint of two values in its node, not of bins of all values."""

    def leaf(self, node: int) -> bool:
        """Return whether a node has no split."""
        return bool(self.left[node] == _LEAF)


def read_trees(
    attributes: Mapping[str, Array], estimator: Estimator, known: Records
) -> list[ReleasedTree]:
    """Return all trees of a release, in the order of their paths."""
    names = [
        name.removesuffix("threshold") for name in attributes if name.endswith("tree_.threshold")
    ]
    bags = _bags(estimator, known)
    trees = [_grown(attributes, name, _bag(bags, name, len(known))) for name in names]
    boosted = [n.removesuffix("num_threshold") for n in attributes if n.endswith("num_threshold")]
    return trees + [_boosted(attributes, name, len(known)) for name in boosted]


def _grown(attributes: Mapping[str, Array], name: str, bag: Array) -> ReleasedTree:
    parts = ("feature", "threshold", "children_left", "children_right", "n_node_samples", "value")
    feature, threshold, left, right, count, value = (attributes[name + part] for part in parts)
    return ReleasedTree(name, feature, threshold, left, right, count, value, bag)


def _boosted(attributes: Mapping[str, Array], name: str, known: int) -> ReleasedTree:
    feature, threshold, left, right, count, value = (
        attributes[name + part]
        for part in ("feature_idx", "num_threshold", "left", "right", "count", "value")
    )
    leaves = attributes[name + "is_leaf"].astype(bool)
    left, right = (np.where(leaves, _LEAF, side.astype(np.int64)) for side in (left, right))
    return ReleasedTree(
        name,
        feature,
        threshold,
        left,
        right,
        count,
        value,
        np.ones(known + 1, dtype=int),
        midpoints=False,
    )


def _bags(estimator: Estimator, known: Records) -> list[Array] | None:
    """Return the records that each tree of a bagged ensemble was trained on.

    The draws depend only on the number of records and the seed. So any record can take the place of
    the target.
    """
    bagged = getattr(estimator.final, "bootstrap", False)
    if not bagged or getattr(estimator.final, "random_state", None) is None:
        return None
    fitted: Any = estimator.fitted(known.with_record(known.take([0])))
    fitted = fitted.steps[-1][1] if hasattr(fitted, "steps") else fitted
    return list(getattr(fitted, "estimators_samples_", [])) or None


def _bag(bags: list[Array] | None, name: str, known: int) -> Array:
    if bags is None:
        return np.ones(known + 1, dtype=int)
    numbered = re.search(r"estimators_\.(\d+)\.", name)
    assert numbered is not None
    return np.bincount(bags[int(numbered[1])], minlength=known + 1)


def paths(tree: ReleasedTree, rows: FloatArray) -> Iterator[tuple[int, Array]]:
    """Yield (node, known records in the bag that reach it) along the target's path, from the root.

    Yields nothing if the target was not in the bag. The walk ends if the counts contradict that
    exactly one record is missing.
    """
    inside = np.flatnonzero(tree.bag[:-1])
    node = 0
    while tree.bag[-1] and tree.count[node] == len(inside) + 1:
        yield node, inside
        if tree.leaf(node):
            return
        values = rows[inside, tree.feature[node]]
        goes_left = values <= tree.threshold[node]
        left = int(tree.left[node])
        missing_left = tree.count[left] == goes_left.sum() + 1
        node, inside = (
            (left, inside[goes_left])
            if missing_left
            else (int(tree.right[node]), inside[~goes_left])
        )
