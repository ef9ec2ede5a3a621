"""The metric protocol: truth and samples in, one number per record out.

Metrics are the only part of Exhume that ever sees the truth.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exhume.protocol.arrays import Array, FloatArray, require_finite
from exhume.protocol.errors import InputError

Range: TypeAlias = tuple[float, float]
BoolArray: TypeAlias = NDArray[np.bool_]
IntArray: TypeAlias = NDArray[np.intp]

RANGE_TOLERANCE = 1e-6
"""Tolerance for values outside the range, relative to its width: rounding, no more."""


class Metric(ABC):
    """Compares records with their reconstructions. Subclasses are frozen dataclasses.

    ``name`` is the metric's name in a configuration. ``higher_is_better`` distinguishes a
    similarity from an error. ``value_range`` is the (low, high) of every value of a record. If it
    is given, the truth and the samples must lie in it, because a score on the wrong scale looks
    like any other number. Both are converted to float64 before ``_score`` sees them.
    """

    name: ClassVar[str]
    higher_is_better: ClassVar[bool]
    joint: ClassVar[bool] = False
    """Whether the samples of a batch are scored together instead of separately."""
    value_range: Range | None

    @final
    def __call__(self, truth: Array, samples: Array) -> FloatArray:
        """Score each sample against its record: (k, *shape) twice -> (k,)."""
        truth, samples = self.checked(truth, "truth"), self.checked(samples, "samples")
        if truth.shape != samples.shape:
            raise InputError(
                f"truth {truth.shape} and samples {samples.shape} must have one shape: "
                "one sample per record"
            )
        return self._score(truth, samples) if len(truth) else np.empty(0)

    @final
    def pairwise(self, truth: Array, samples: Array) -> FloatArray:
        """Score every sample against every record: (k, *shape), (m, *shape) -> (k, m)."""
        truth, samples = self.checked(truth, "truth"), self.checked(samples, "samples")
        if truth.shape[1:] != samples.shape[1:]:
            raise InputError(
                f"records have shape {truth.shape[1:]}, samples {samples.shape[1:]}: "
                "both must be the same"
            )
        if not len(truth) or not len(samples):
            return np.empty((len(truth), len(samples)))
        return self._pairwise(truth, samples)

    @final
    def reaches(self, scores: ArrayLike, thresholds: ArrayLike) -> BoolArray:
        """Return which scores are at least as good as their threshold; NaN never is.

        This is the success of a reconstruction, l(z, z') <= eta (Balle et al. 2022, Definition 2),
        with the inequality reversed for a similarity.
        """
        scores, thresholds = np.asarray(scores), np.asarray(thresholds)
        return np.asarray(
            scores >= thresholds if self.higher_is_better else scores <= thresholds, dtype=bool
        )

    @final
    def checked(self, records: Array, what: str) -> FloatArray:
        """Return ``records`` (n, *shape) as float64, in range; errors call them ``what``."""
        array = np.asarray(records)
        if array.dtype.kind not in "buif":
            raise InputError(f"{what} must hold real numbers, got dtype {array.dtype}")
        if array.ndim < 2:
            raise InputError(f"{what} must have shape (k, features, ...), got {array.shape}")
        require_finite(array, what)
        array = np.ascontiguousarray(array, dtype=np.float64)
        if self.value_range is not None:
            _require_within(array, self.value_range, what=what, name=self.name)
        return array

    @abstractmethod
    def _score(self, truth: FloatArray, samples: FloatArray) -> FloatArray:
        """Score k > 0 checked records against as many samples."""

    def _pairwise(self, truth: FloatArray, samples: FloatArray) -> FloatArray:
        """Score each pair, row by row; subclasses that can share work override it."""
        return np.stack(
            [self._score(np.broadcast_to(record, samples.shape), samples) for record in truth]
        )


def require_range(value_range: Range | None, *, name: str) -> None:
    """Raise InputError unless ``value_range`` is a finite (low, high) with low < high."""
    if value_range is None:
        raise InputError(f"{name} needs value_range=(low, high), such as (0, 1) or (0, 255)")
    low, high = value_range
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise InputError(
            f"{name}: value_range must be (low, high), finite and with low < high: {value_range}"
        )


def _require_within(array: FloatArray, value_range: Range, *, what: str, name: str) -> None:
    low, high = value_range
    slack = RANGE_TOLERANCE * (high - low)
    if not array.size or (array.min() >= low - slack and array.max() <= high + slack):
        return
    beyond = np.maximum(low - array, array - high)
    worst = np.unravel_index(int(np.argmax(beyond)), array.shape)
    where = ", ".join(str(int(i)) for i in worst)
    raise InputError(
        f"{what}: {array[worst]:.6g} at index ({where}) is outside {name}'s value range "
        f"[{low:g}, {high:g}]: rescale the records, or give the metric their range"
    )
