"""The part of a record outside the span of a batch of candidates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from exhume.protocol.arrays import FloatArray
from exhume.protocol.metric import Metric, Range, require_range


@dataclass(frozen=True, kw_only=True)
class SpanResidual(Metric):
    """The part of each record outside the span of a batch's candidates, relative to its length.

    Liu et al. 2024, section 5.1 (Table 2): 0 if the record lies in the span, 1 if it is orthogonal
    to all candidates. Length, sign and order of the candidates do not count: a batch may score 0
    although no single record was rebuilt.

    >>> found = np.array([[1.0, 1.0, 0.0], [1.0, -1.0, 0.0]])
    >>> SpanResidual()(np.eye(3)[:2], found).round(6).tolist()
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
        """Score each record against each single sample: the sine of their angle."""
        return np.stack([self._score(truth, sample[None]) for sample in samples], axis=1)
