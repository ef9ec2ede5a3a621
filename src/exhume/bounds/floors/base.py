"""A floor on the reconstruction error: what no attack of the kind it binds can beat."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from exhume.arrays import FloatArray, require_finite
from exhume.bounds.checks import require_positive
from exhume.errors import InputError


class Binds(Enum):
    """Which attacks a floor holds for. The value is what is shown beside the number."""

    UNBIASED = "unbiased attacks only"
    """Attacks right on average at every record. One that leans on a prior may go below."""
    ALL = "all attacks"
    """Every attack, biased or not; the error is averaged over the prior the floor was given."""


class Unit(Enum):
    """Which error a floor is about."""

    MSE = "mean squared error a coordinate"
    RMSE = "root of the mean squared error a coordinate"
    RELATIVE_MSE = "mean squared error over the record's mean square"


@dataclass(frozen=True, kw_only=True)
class Floor:
    """A lower bound on an error: ``value`` in ``unit``, from ``method``, holding for ``binds``.

    ``value`` is at least 0 and may be infinite. ``standard_error`` belongs to floors that were
    estimated from random draws (None: exact). For a Cramér–Rao floor, ``unidentifiable`` counts
    the directions in which the release does not move with the record (None: not counted) and
    ``identifiable_value`` is the floor in the other directions alone, still spread over all
    coordinates. ``shortfall`` estimates by which share of ``value`` an iteration that was stopped
    still lies below the floor it was heading for (None: no iteration).
    """

    value: float
    unit: Unit
    method: str
    binds: Binds
    standard_error: float | None = None
    unidentifiable: int | None = None
    identifiable_value: float | None = None
    shortfall: float | None = None
    note: str = ""

    def __post_init__(self) -> None:
        if math.isnan(self.value) or self.value < 0:
            raise InputError(f"a floor must be a number of at least 0, got {self.value}")

    def __str__(self) -> str:
        error = "" if not self.standard_error else f" ± {self.standard_error:.2g}"
        return f"{self.unit.value} ≥ {self.value:.4g}{error}, {self.binds.value} ({self.method})"

    def lower_limit(self, confidence: float = 0.975) -> float:
        """The floor less its sampling error: a one-sided normal limit, never below 0.

        >>> f = Floor(value=2.0, unit=Unit.MSE, method="m", binds=Binds.ALL, standard_error=0.1)
        >>> round(f.lower_limit(), 3)
        1.804
        """
        if not 0.5 <= confidence < 1:
            raise InputError(f"confidence must be in [0.5, 1), got {confidence}")
        if not self.standard_error or math.isinf(self.value):
            return self.value
        return max(0.0, self.value - NormalDist().inv_cdf(confidence) * self.standard_error)

    def root(self) -> Floor:
        """The same floor on the root of the mean squared error (not on the mean of the roots).

        >>> Floor(value=0.25, unit=Unit.MSE, method="m", binds=Binds.ALL).root().value
        0.5
        """
        if self.unit is not Unit.MSE:
            raise InputError(f"only a floor on the mean squared error has a root, not {self.unit}")
        error, part = self.standard_error, self.identifiable_value
        value = math.sqrt(self.value)
        return replace(
            self,
            value=value,
            unit=Unit.RMSE,
            standard_error=error / (2 * value) if error and value else error,
            identifiable_value=None if part is None else math.sqrt(part),
            shortfall=None if self.shortfall is None else self.shortfall / 2,
        )

    def relative_to(self, mean_square: float) -> Floor:
        """The same floor over E‖x‖²/d, the mean square of a record's coordinates (> 0)."""
        if self.unit is not Unit.MSE:
            raise InputError(f"only a floor on the mean squared error can be relative: {self.unit}")
        require_positive("mean_square", mean_square)
        error, part = self.standard_error, self.identifiable_value
        return replace(
            self,
            value=self.value / mean_square,
            unit=Unit.RELATIVE_MSE,
            standard_error=None if error is None else error / mean_square,
            identifiable_value=None if part is None else part / mean_square,
        )


def require_amount(name: str, value: float) -> float:
    """Return ``value`` as a float, or raise InputError unless it is at least 0; it may be infinite.

    For what a release gives away: nothing is known of a release without guarantee, so infinity.
    """
    if not value >= 0.0:
        raise InputError(f"{name} must be a number of at least 0, got {value:g}")
    return float(value)


def checked_jacobian(jacobian: ArrayLike, *, dimensions: Sequence[int] = (2,)) -> FloatArray:
    """Return ``jacobian`` (outputs, inputs) as float64, or raise InputError."""
    array = np.asarray(jacobian)
    if array.ndim not in dimensions or 0 in array.shape or array.dtype.kind not in "fiu":
        raise InputError(
            "a jacobian needs shape (outputs, inputs) with real entries and none of the two 0, "
            f"got {array.shape} of {array.dtype}"
        )
    require_finite(array, "the jacobian")
    return array.astype(np.float64)


def checked_noise(noise_std: ArrayLike, outputs: int) -> FloatArray:
    """Return the noise's standard deviation of each output, shape (outputs,), all above 0."""
    noise = np.asarray(noise_std, dtype=np.float64)
    if noise.shape not in ((), (outputs,)):
        raise InputError(
            f"noise_std must be one number or one an output ({outputs}), got {noise.shape}"
        )
    require_finite(noise, "noise_std")
    if (noise <= 0).any():
        raise InputError(
            f"noise_std must be above 0, got {noise.min():g}; without noise there is no floor"
        )
    return np.broadcast_to(noise, (outputs,))
