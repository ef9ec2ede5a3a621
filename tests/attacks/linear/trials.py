"""Attacks on real tables: the tables, the run, and how far off each answer was."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine

from exhume.attacks import GLM, Attack
from exhume.defences import undefended
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.records import Records
from exhume.protocol.release import Release, Weights
from exhume.training import GLM as Model

_LOADERS = {
    "breast cancer": load_breast_cancer,
    "diabetes": load_diabetes,
    "digits": load_digits,
    "wine": load_wine,
}


@cache
def table(name: str) -> Records:
    """A table of scikit-learn's, shuffled; clinical columns standardised, pixels in [0, 1]."""
    x, y = _LOADERS[name](return_X_y=True)
    if name in ("breast cancer", "wine"):
        x = (x - x.mean(axis=0)) / x.std(axis=0)
    if name == "digits":
        x = x / 16.0
    order = np.random.default_rng(0).permutation(len(x))
    return Records(x[order], y[order])


@dataclass(frozen=True, eq=False)
class Trials:
    """Targets attacked one after the other, each from a model trained with it."""

    mechanism: Mechanism
    fixed_set: Records
    targets: Records
    releases: list[Release]
    found: list[Reconstruction]

    @cached_property
    def errors(self) -> np.ndarray:
        """The root-mean-square error of the first candidate; infinite where there is none."""
        return np.array([_error(r, x) for r, x in zip(self.found, self.targets.x, strict=True)])

    @cached_property
    def relative_errors(self) -> np.ndarray:
        """The same, of the target's own root mean square."""
        return self.errors / np.sqrt(np.mean(self._rows**2, axis=1))

    @cached_property
    def estimates(self) -> np.ndarray:
        """What the attack itself thought of its first candidate's error."""
        return np.array([r.error_estimate[0] if len(r) else np.inf for r in self.found])

    @cached_property
    def residuals(self) -> np.ndarray:
        """|y − μ| of each target at its own release, over all outputs."""
        model = undefended(self.mechanism)
        assert isinstance(model, Model)
        rows, responses = model.design(self.targets.x, {}), model.responses(self.targets.labels)
        thetas = [model.theta(r.parameters) for r in self.releases if isinstance(r, Weights)]
        means = [model.family.mean(row @ theta) for row, theta in zip(rows, thetas, strict=True)]
        return np.linalg.norm(responses - np.stack(means), axis=1)

    @property
    def converged(self) -> np.ndarray:
        """Where the attack says that it has the record."""
        return np.array([r.status is Status.CONVERGED for r in self.found])

    @property
    def labels_right(self) -> np.ndarray:
        """Where the first candidate's label is the target's, numbers to 1e-6."""
        right = []
        for found, truth in zip(self.found, self.targets.labels.tolist(), strict=True):
            label = found.labels.tolist()[0] if len(found) and found.labels is not None else None
            if isinstance(truth, float):
                right.append(label is not None and abs(label - truth) <= 1e-6 * (1 + abs(truth)))
            else:
                right.append(label == truth)
        return np.array(right)

    @property
    def best_relative_errors(self) -> np.ndarray:
        """The smallest relative error among all of a target's candidates."""
        size = np.sqrt(np.mean(self._rows**2, axis=1))
        rows = [r.samples.reshape(len(r), -1) for r in self.found]
        gaps = [
            np.sqrt(np.mean((s - x) ** 2, axis=1)) for s, x in zip(rows, self._rows, strict=True)
        ]
        return np.array([gap.min(initial=np.inf) for gap in gaps]) / size

    @property
    def _rows(self) -> np.ndarray:
        return self.targets.x.reshape(len(self.targets), -1)


def attacked(
    mechanism: Mechanism,
    data: Records,
    count: int,
    *,
    attack: Attack | None = None,
    labels_known: bool = False,
) -> Trials:
    """Train with each of the last ``count`` records added to all before them, and attack it."""
    fixed_set = data.take(np.arange(len(data) - count))
    targets = data.take(np.arange(len(data) - count, len(data)))
    streams = [np.random.default_rng([1, i]) for i in range(count)]
    releases = list(mechanism.publish_each(fixed_set, targets, rngs=streams))
    knowledge = [
        Knowledge(
            record_shape=data.record_shape,
            training=mechanism,
            fixed_set=fixed_set,
            labels=targets.labels[[i]] if labels_known else None,
            target_weight=1.0 if targets.weight is None else float(targets.weight[i]),
        )
        for i in range(count)
    ]
    streams = [np.random.default_rng([2, i]) for i in range(count)]
    found = (attack or GLM()).reconstruct_each(releases, knowledge, rngs=streams)
    return Trials(mechanism, fixed_set, targets, releases, found)


def _error(found: Reconstruction, truth: np.ndarray) -> float:
    if not len(found):
        return float("inf")
    return float(np.sqrt(np.mean((found.samples[0] - truth) ** 2)))
