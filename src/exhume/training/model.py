"""The common functions of released models: scores, predictions, accuracy."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.errors import InputError
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.records import Records
from exhume.protocol.release import Weights

Label = int | float | str


class Model(Mechanism):
    """A mechanism that releases the weights of a predictor.

    ``classes`` lists the labels of a classifier in the order of its outputs, None for a regression.
    """

    classes: tuple[Label, ...] | None

    @property
    def answers(self) -> bool:
        """Whether scores can be computed from a release: its architecture is known."""
        return True

    @abstractmethod
    def scores(self, release: Weights, x: Array) -> FloatArray:
        """Return the raw scores (n, outputs) of records ``x`` (n, *record shape)."""

    @abstractmethod
    def means(self, scores: FloatArray) -> FloatArray:
        """Return class probabilities (n, classes), or the predicted responses (n, outputs)."""

    @abstractmethod
    def describe(self) -> str:
        """Return a short description of the training for the report."""

    def responses(self, labels: Array) -> Array:
        """Return labels as class indices, or as numbers for a regression."""
        if self.classes is None:
            return np.asarray(labels, dtype=np.float64)
        matches = np.asarray(labels)[:, None] == np.asarray(self.classes)[None, :]
        if not matches.any(axis=1).all():
            stranger = np.asarray(labels)[~matches.any(axis=1)][0]
            raise InputError(
                f"label {stranger} is not one of the model's classes ({_some(self.classes)})"
            )
        return np.asarray(matches.argmax(axis=1))

    def score(self, release: Weights, data: Records) -> float:
        """Return the released model's accuracy on ``data`` (classes) or its R² (regressions)."""
        means = self.means(self.scores(release, data.x))
        if self.classes is not None:
            return float(np.mean(np.asarray(self.classes)[means.argmax(axis=1)] == data.labels))
        y = np.asarray(data.labels, dtype=np.float64)
        return float(1.0 - np.mean((y - means[:, 0]) ** 2) / np.var(y))


def _some(classes: Sequence[object], most: int = 12) -> str:
    """Spell classes, and count those that are too many.

    >>> _some((0, 1)), _some(range(60), 3)
    ('0, 1', '0, 1, 2 and 57 more')
    """
    shown = ", ".join(map(str, classes[:most]))
    return shown if len(classes) <= most else f"{shown} and {len(classes) - most} more"
