"""A floor on the reconstruction error: no attack that it binds reaches a smaller error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from exhume.bounds.checks import require_positive
from exhume.protocol.arrays import FloatArray, require_finite
from exhume.protocol.errors import InputError


class FloorBinds(Enum):
    """Which attacks a floor holds for. The value is printed beside the number."""

    UNBIASED = "unbiased attacks only"
    """Attacks that are right on average at every record. An attack with a prior may go below."""
    ALL = "all attacks"
    """Every attack, biased or not; the error is averaged over the prior given to the floor."""


class ErrorUnit(Enum):
    """The error that a floor limits."""

    MSE = "mean squared error per coordinate"
    RMSE = "root of the mean squared error per coordinate"
    RELATIVE_MSE = "mean squared error over the record's mean square"


@dataclass(frozen=True, kw_only=True)
class Floor:
    """A lower bound on an error: ``value`` in ``unit``, from ``method``, valid for ``binds``.

    ``value`` is at least 0 and may be infinite. ``standard_error`` belongs to floors estimated from
    random draws (None: exact). For a Cramér–Rao floor, ``unidentifiable`` is the number of
    directions in which the release does not change with the record (None: not counted).
    ``identifiable_value`` is the floor of the other directions alone, still divided by the number
    of all coordinates. If an iteration was stopped, ``shortfall`` estimates by which share of
    ``value`` the result is below its limit (None: no iteration).
    """

    value: float
    unit: ErrorUnit
    method: str
    binds: FloorBinds
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
        """The floor minus its sampling error: a one-sided normal limit, never below 0.

        >>> whole = {"unit": ErrorUnit.MSE, "method": "m", "binds": FloorBinds.ALL}
        >>> f = Floor(value=2.0, standard_error=0.1, **whole)
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

        >>> Floor(value=0.25, unit=ErrorUnit.MSE, method="m", binds=FloorBinds.ALL).root().value
        0.5
        """
        if self.unit is not ErrorUnit.MSE:
            raise InputError(f"only a floor on the mean squared error has a root, not {self.unit}")
        error, part = self.standard_error, self.identifiable_value
        value = math.sqrt(self.value)
        return replace(
            self,
            value=value,
            unit=ErrorUnit.RMSE,
            standard_error=error / (2 * value) if error and value else error,
            identifiable_value=None if part is None else math.sqrt(part),
            shortfall=None if self.shortfall is None else self.shortfall / 2,
        )

    def relative_to(self, mean_square: float) -> Floor:
        """The same floor over E‖x‖²/d, the mean square of a record's coordinates (> 0)."""
        if self.unit is not ErrorUnit.MSE:
            raise InputError(f"only a floor on the mean squared error can be relative: {self.unit}")
        require_positive("mean_square", mean_square)
        error, part = self.standard_error, self.identifiable_value
        return replace(
            self,
            value=self.value / mean_square,
            unit=ErrorUnit.RELATIVE_MSE,
            standard_error=None if error is None else error / mean_square,
            identifiable_value=None if part is None else part / mean_square,
        )


def require_amount(name: str, value: float) -> float:
    """Return ``value`` as a float, or raise InputError unless it is at least 0; it may be infinite.

    It is the information in a release; without a guarantee nothing limits it, so it is infinite.
    """
    if not value >= 0.0:
        raise InputError(f"{name} must be a number of at least 0, got {value:g}")
    return float(value)


def checked_jacobian(jacobian: ArrayLike, *, dimensions: Sequence[int] = (2,)) -> FloatArray:
    """Return ``jacobian`` (outputs, inputs) as float64, or raise InputError."""
    array = np.asarray(jacobian)
    if array.ndim not in dimensions or 0 in array.shape or array.dtype.kind not in "fiu":
        raise InputError(
            "a jacobian needs shape (outputs, inputs) with real entries and both sizes above 0, "
            f"got {array.shape} of {array.dtype}"
        )
    require_finite(array, "the jacobian")
    return array.astype(np.float64)


def checked_noise(noise_std: ArrayLike, outputs: int) -> FloatArray:
    """Return the noise's standard deviation of each output, shape (outputs,), all above 0."""
    noise = np.asarray(noise_std, dtype=np.float64)
    if noise.shape not in ((), (outputs,)):
        raise InputError(
            f"noise_std must be one number or one per output ({outputs}), got {noise.shape}"
        )
    require_finite(noise, "noise_std")
    if (noise <= 0).any():
        raise InputError(
            f"noise_std must be above 0, got {noise.min():g}; without noise there is no floor"
        )
    return np.broadcast_to(noise, (outputs,))
