"""How much of a record a whole batch of candidates can express."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from exhume.arrays import FloatArray
from exhume.metrics.base import Metric, Range, require_range


@dataclass(frozen=True, kw_only=True)
class Span(Metric):
    """What the span of a batch's candidates leaves of each record, in parts of its length.

    Liu et al. 2024, section 5.1 (Table 2): 0 where the candidates together express the record, 1
    where it stands at right angles to them all. Length, sign and order of the candidates don't
    count, nor which is which: a batch may score 0 without a single record come back.

    >>> Span()(np.eye(3)[:2], np.array([[1.0, 1.0, 0.0], [1.0, -1.0, 0.0]])).round(6).tolist()
    [0.0, 0.0]
    """

    name: ClassVar[str] = "span"
    higher_is_better: ClassVar[bool] = False
    joint: ClassVar[bool] = True
    value_range: Range | None = None

    def __post_init__(self) -> None:
        if self.value_range is not None:
            require_range(self.value_range, name=self.name)

    def _score(self, truth: FloatArray, samples: FloatArray) -> FloatArray:
        """Score records against all samples together."""
        rows = truth.reshape(len(truth), -1)
        found = samples.reshape(len(samples), -1)
        found = found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-300)
        left, sizes, _ = np.linalg.svd(found.T, full_matrices=False)
        basis = left[:, sizes > 1e-12 * max(float(sizes[0]), 1e-300)]
        away = rows - (rows @ basis) @ basis.T
        lengths = np.maximum(np.linalg.norm(rows, axis=1), 1e-300)
        return np.asarray(np.linalg.norm(away, axis=1) / lengths)

    def _pairwise(self, truth: FloatArray, samples: FloatArray) -> FloatArray:
        """Score each record against each sample alone: the sine of their angle."""
        return np.stack([self._score(truth, sample[None]) for sample in samples], axis=1)
