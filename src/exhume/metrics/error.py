"""Errors and similarities computed from the values alone: MSE, RMSE, PSNR, NCC.

Metrics that are a function of one Euclidean distance: they share one fast path.

MSE, RMSE and PSNR are such functions of the records themselves, LPIPS of a network's features.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from exhume.protocol.arrays import Array, FloatArray, frozen, require_finite
from exhume.protocol.errors import InputError
from exhume.protocol.metric import BoolArray, Metric, Range, require_range


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


CONSTANT = 1e-12
"""A record is constant if it differs from its mean by less than this share of its size."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ScaledMetric(EuclideanMetric):
    """An error of a record's entries, 0 if all are right.

    ``scale`` (a number, or one per feature in the shape of a record) divides the differences: with
    the pool's standard deviations, all columns of a table have the same weight.
    """

    higher_is_better: ClassVar[bool] = False
    value_range: Range | None = None
    scale: Array | None = None

    def __post_init__(self) -> None:
        if self.value_range is not None:
            require_range(self.value_range, name=self.name)
        object.__setattr__(self, "scale", _positive_scale(self.scale))

    def embed(self, records: FloatArray) -> FloatArray:
        """Return the records, flattened and in units of ``scale``."""
        return _flat(records, self.scale)


@dataclass(frozen=True, eq=False, kw_only=True)
class MSE(ScaledMetric):
    """Mean squared error over a record's entries (Balle et al. 2022, section V-B); 0 is perfect.

    >>> MSE()(np.array([[0.0, 1.0]]), np.array([[0.5, 1.0]]))
    array([0.125])
    """

    name: ClassVar[str] = "mse"

    def from_mean_square(self, mean_square: FloatArray) -> FloatArray:
        """Return ``mean_square`` itself."""
        return mean_square


@dataclass(frozen=True, eq=False, kw_only=True)
class RMSE(ScaledMetric):
    """Root of the mean squared error, in the records' own units or those of ``scale``.

    Unlike MSE, it satisfies the triangle inequality.

    >>> RMSE()(np.array([[0.0, 0.0]]), np.array([[0.5, 0.5]]))
    array([0.5])
    """

    name: ClassVar[str] = "rmse"

    def from_mean_square(self, mean_square: FloatArray) -> FloatArray:
        """Return the square root."""
        return np.sqrt(mean_square)


@dataclass(frozen=True, kw_only=True)
class PSNR(EuclideanMetric):
    """Peak signal-to-noise ratio in decibels, 10 log10(width² / MSE), at most ``cap_db``.

    Two equal records would score infinity, and so would every mean: scores are limited to the cap.
    Published means depend on their cap, so always state it.

    >>> PSNR(value_range=(0, 1))(np.zeros((2, 4)), np.array([[0.1] * 4, [0.0] * 4])).tolist()
    [20.0, 100.0]
    """

    name: ClassVar[str] = "psnr"
    higher_is_better: ClassVar[bool] = True
    value_range: Range
    cap_db: float = 100.0

    def __post_init__(self) -> None:
        require_range(self.value_range, name=self.name)
        if not 0 < self.cap_db < 300:
            raise InputError(f"psnr: cap_db must lie between 0 and 300, got {self.cap_db}")

    def embed(self, records: FloatArray) -> FloatArray:
        """Return the records, flattened."""
        return _flat(records, None)

    def from_mean_square(self, mean_square: FloatArray) -> FloatArray:
        """Return the decibels."""
        noise = mean_square / (self.value_range[1] - self.value_range[0]) ** 2
        quietest = 10.0 ** (-self.cap_db / 10)
        decibels: FloatArray = 0.0 - 10.0 * np.log10(np.maximum(noise, quietest))
        return np.where(noise <= quietest, self.cap_db, decibels)


@dataclass(frozen=True, kw_only=True)
class NCC(Metric):
    """Normalised cross-correlation in [-1, 1]: 1 where samples = a·truth + b with some a > 0.

    Each record is centred and scaled to length one over all of its entries, so brightness and
    contrast do not count. For a constant record nothing remains: two constant records score 1 (they
    differ only in brightness), a constant and any other record 0.

    >>> NCC()(np.array([[0.0, 1, 2]] * 2), np.array([[5.0, 7, 9], [1, 1, 1]])).round(9)
    array([1., 0.])
    """

    name: ClassVar[str] = "ncc"
    higher_is_better: ClassVar[bool] = True
    value_range: Range | None = None

    def __post_init__(self) -> None:
        if self.value_range is not None:
            require_range(self.value_range, name=self.name)

    def _score(self, truth: FloatArray, samples: FloatArray) -> FloatArray:
        (a, a_constant), (b, b_constant) = _unit_length(truth), _unit_length(samples)
        correlation = np.clip((a * b).sum(axis=1), -1.0, 1.0)
        return np.where(a_constant & b_constant, 1.0, correlation)

    def _pairwise(self, truth: FloatArray, samples: FloatArray) -> FloatArray:
        (a, a_constant), (b, b_constant) = _unit_length(truth), _unit_length(samples)
        correlation = np.clip(a @ b.T, -1.0, 1.0)
        return np.where(a_constant[:, None] & b_constant[None, :], 1.0, correlation)


def _unit_length(records: FloatArray) -> tuple[FloatArray, BoolArray]:
    """Return flat records, centred and of length one (constant ones 0), and which are constant."""
    flat = records.reshape(len(records), -1)
    centred = flat - flat.mean(axis=1, keepdims=True)
    spread = np.abs(centred).max(axis=1, keepdims=True)
    constant = spread <= CONSTANT * np.abs(flat).max(axis=1, keepdims=True)
    # Dividing by the largest entry first prevents underflow in the squares of tiny records.
    centred = np.where(constant, 0.0, centred / np.where(constant, 1.0, spread))
    length = np.where(constant, 1.0, np.linalg.norm(centred, axis=1, keepdims=True))
    return centred / length, constant[:, 0]


def _flat(records: FloatArray, scale: Array | None) -> FloatArray:
    if scale is not None:
        if scale.ndim and scale.shape != records.shape[1:]:
            raise InputError(
                f"scale has shape {scale.shape}, but a record {records.shape[1:]}: "
                "give one number per feature, or one for all"
            )
        records = records / scale
    return records.reshape(len(records), -1)


def _positive_scale(scale: Array | None) -> Array | None:
    if scale is None:
        return None
    scale = frozen(scale, dtype=np.float64)
    require_finite(scale, "scale")
    if scale.size and scale.min() <= 0:
        worst = np.unravel_index(int(np.argmin(scale)), scale.shape)
        where = ", ".join(str(int(i)) for i in worst)
        raise InputError(
            f"scale must be positive everywhere, got {scale[worst]:g} at index ({where}); give a "
            "constant feature the scale 1"
        )
    return scale
