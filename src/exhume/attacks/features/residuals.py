"""Where a fit takes its residuals R from: held, free, or what the head itself would answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.attacks.features.head import Head, Response
from exhume.attacks.features.observed import Observed

_RIDGE = 1e-12


class Residuals(Protocol):
    """R (B, K) as a function of the hidden values (m, B)."""

    def at(self, values: FloatArray) -> FloatArray:
        """Return R."""

    def pulled_back(self, residuals: FloatArray, slope: FloatArray) -> FloatArray | None:
        """Return ∂/∂values (m, B) of a loss with ``slope`` ∂/∂R (B, K); None for 0."""


@dataclass(frozen=True, eq=False)
class Held:
    """R stays as it is: (p − e_y)/B hardly moves as long as the head is unsure."""

    residuals: FloatArray

    def at(self, values: FloatArray) -> FloatArray:
        """Return the R that is held."""
        return self.residuals

    def pulled_back(self, residuals: FloatArray, slope: FloatArray) -> FloatArray | None:
        """Return None: nothing moves."""
        return None


@dataclass(frozen=True, eq=False)
class Free:
    """The R that explains the released entries best (variable projection, Golub & Pereyra 1973)."""

    observed: Observed

    def at(self, values: FloatArray) -> FloatArray:
        """Return the least-squares R, each output over its own released entries."""
        gradient, released = self.observed.gradient, self.observed.released
        if released is None:
            return _solved(values, gradient)
        columns = [
            _solved(values[rows], gradient[rows, k : k + 1]) for k, rows in enumerate(released.T)
        ]
        return np.concatenate(columns, axis=1)

    def pulled_back(self, residuals: FloatArray, slope: FloatArray) -> FloatArray | None:
        """Return None: at the best R the loss has no slope in R."""
        return None


@dataclass(frozen=True, eq=False)
class Consistent:
    """The R that the head has at these hidden values, for known ``responses`` (B,).

    ``unit`` is what a residual is divided by: the batch's size, and the gradient's own unit.
    """

    head: Head
    responses: Array
    outputs: int
    unit: float

    def at(self, values: FloatArray) -> FloatArray:
        """Return (p − e_y)/unit, or (score − y)/unit."""
        return self.head.residuals(values, self.responses, self.outputs) / self.unit

    def pulled_back(self, residuals: FloatArray, slope: FloatArray) -> FloatArray | None:
        """Go back through softmax and A; None where A is not known."""
        if self.head.output is None:
            return None
        slope = slope / self.unit
        if self.head.response is Response.CLASSES:
            shares = residuals * self.unit
            shares[np.arange(len(shares)), self.responses] += 1.0
            slope = shares * (slope - (shares * slope).sum(axis=1, keepdims=True))
        back: FloatArray = self.head.output.T @ slope.T
        return back


def _solved(values: FloatArray, gradient: FloatArray) -> FloatArray:
    gram = values.T @ values
    gram[np.diag_indices_from(gram)] += _RIDGE * np.trace(gram) + 1e-300
    solved: FloatArray = np.linalg.solve(gram, values.T @ gradient)
    return solved
