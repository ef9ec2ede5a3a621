"""The divergence between a classifier's answers on a record and on its reconstruction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, TypeAlias

import numpy as np

from exhume.protocol.arrays import Array, FloatArray, require_finite
from exhume.protocol.errors import InputError
from exhume.protocol.metric import Metric, Range, require_range

Predict: TypeAlias = Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class ClassifierKL(Metric):
    """KL(p(truth) ‖ p(samples)) in nats, of a classifier's class probabilities; 0 is perfect.

    ``predict`` maps records (k, *shape) to probabilities (k, classes); it should be a good
    classifier that is independent of the release (Balle et al. 2022, section V-B). Every
    probability is raised to at least ``floor`` and the row is normalised again, so that a class
    with probability 0 costs at most about log(1 / floor), 27.6 nats, instead of infinity.
    """

    name: ClassVar[str] = "kl"
    higher_is_better: ClassVar[bool] = False
    predict: Predict
    _: KW_ONLY
    value_range: Range | None = None
    floor: float = 1e-12

    def __post_init__(self) -> None:
        if self.value_range is not None:
            require_range(self.value_range, name=self.name)
        if not 0 < self.floor <= 1e-3:
            raise InputError(f"kl: floor must lie in (0, 0.001], got {self.floor}")

    def _score(self, truth: FloatArray, samples: FloatArray) -> FloatArray:
        p, q = self._probabilities(truth), self._probabilities(samples)
        divergence: FloatArray = (p * (np.log(p) - np.log(q))).sum(axis=1)
        return np.maximum(divergence, 0.0)

    def _pairwise(self, truth: FloatArray, samples: FloatArray) -> FloatArray:
        p, q = self._probabilities(truth), self._probabilities(samples)
        divergence: FloatArray = (p * np.log(p)).sum(axis=1, keepdims=True) - p @ np.log(q).T
        return np.maximum(divergence, 0.0)

    def _probabilities(self, records: FloatArray) -> FloatArray:
        answers = np.asarray(self.predict(records), dtype=np.float64)
        if answers.ndim != 2 or len(answers) != len(records) or answers.shape[1] < 2:
            raise InputError(
                f"kl: predict must return ({len(records)}, classes), at least 2 classes, "
                f"got {answers.shape}"
            )
        require_finite(answers, "predict's answers")
        if answers.min() < -1e-6 or np.abs(answers.sum(axis=1) - 1).max() > 1e-3:
            raise InputError(
                "kl: predict must return probabilities, at least 0 and summing to 1 in every row; "
                f"row {_worst_row(answers)} sums to {answers[_worst_row(answers)].sum():.6g} "
                "(are they scores before a softmax?)"
            )
        raised: FloatArray = np.maximum(answers, self.floor)
        raised /= raised.sum(axis=1, keepdims=True)
        return raised


def _worst_row(answers: FloatArray) -> int:
    offence = np.maximum(np.abs(answers.sum(axis=1) - 1), -answers.min(axis=1))
    return int(np.argmax(offence))
