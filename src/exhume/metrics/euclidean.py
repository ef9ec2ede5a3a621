"""Metrics that are a function of one Euclidean distance: they share one fast path.

MSE, RMSE and PSNR are such functions of the records themselves, LPIPS of a network's features.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import final

import numpy as np

from exhume.arrays import FloatArray
from exhume.metrics.base import Metric


class EuclideanMetric(Metric):
    """A monotone function of the mean squared difference between two records' embeddings."""

    @abstractmethod
    def embed(self, records: FloatArray) -> FloatArray:
        """Return (n, size): the vectors whose mean squared difference the metric depends on."""

    @abstractmethod
    def from_mean_square(self, mean_square: FloatArray) -> FloatArray:
        """Turn mean squared differences (any shape, >= 0) into scores."""

    @final
    def _score(self, truth: FloatArray, samples: FloatArray) -> FloatArray:
        difference = self.embed(truth) - self.embed(samples)
        return self.from_mean_square(np.square(difference).mean(axis=1))

    @final
    def _pairwise(self, truth: FloatArray, samples: FloatArray) -> FloatArray:
        # cdist subtracts before it squares, and keeps no temporaries: unlike a matrix product it
        # resolves the errors of 1e-25 that exact reconstructions have.
        from scipy.spatial.distance import cdist

        rows, columns = self.embed(truth), self.embed(samples)
        mean_square: FloatArray = cdist(rows, columns, "sqeuclidean") / rows.shape[1]
        return self.from_mean_square(mean_square)
