"""What every trained model can do once it is released: score, answer, be measured."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.mechanism import Mechanism
from exhume.records import Records
from exhume.release import Weights

Label = int | float | str


class Model(Mechanism):
    """A mechanism that releases the weights of a predictor.

    ``classes`` lists the labels of a classifier in the order of its outputs, None for a regression.
    """

    classes: tuple[Label, ...] | None

    @abstractmethod
    def scores(self, release: Weights, x: Array) -> FloatArray:
        """Return the raw scores (n, outputs) of records ``x`` (n, *record shape)."""

    @abstractmethod
    def means(self, scores: FloatArray) -> FloatArray:
        """Return class probabilities (n, classes), or the predicted responses (n, outputs)."""

    @abstractmethod
    def describe(self) -> str:
        """Say in a few words what is trained, for the report."""

    def score(self, release: Weights, data: Records) -> float:
        """Return the released model's accuracy on ``data`` (classes) or its R² (regressions)."""
        means = self.means(self.scores(release, data.x))
        if self.classes is not None:
            return float(np.mean(np.asarray(self.classes)[means.argmax(axis=1)] == data.labels))
        y = np.asarray(data.labels, dtype=np.float64)
        return float(1.0 - np.mean((y - means[:, 0]) ** 2) / np.var(y))
