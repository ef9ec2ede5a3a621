"""Checks of the numbers that bounds take; they raise InputError in one line."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from exhume.protocol.arrays import FloatArray
from exhume.protocol.errors import InputError


def require_probability(name: str, value: float) -> float:
    """Return ``value`` as a float, or raise InputError unless it is in [0, 1]."""
    if not 0.0 <= value <= 1.0:
        raise InputError(f"{name} must be a probability in [0, 1], got {value:g}")
    return float(value)


def require_positive(name: str, value: float) -> float:
    """Return ``value`` as a float, or raise InputError unless it is finite and above 0."""
    if not (value > 0.0 and math.isfinite(value)):
        raise InputError(f"{name} must be a finite number above 0, got {value:g}")
    return float(value)


def require_not_negative(name: str, value: float) -> float:
    """Return ``value`` as a float, or raise InputError unless it is finite and at least 0."""
    if not (value >= 0.0 and math.isfinite(value)):
        raise InputError(f"{name} must be a finite number of at least 0, got {value:g}")
    return float(value)


def require_order(order: float) -> float:
    """Return a Rényi order as a float, or raise InputError unless it is above 1 (may be inf)."""
    if not order > 1.0:
        raise InputError(f"the Rényi order must be above 1, got {order:g}")
    return float(order)


_MOST_STEPS = 10**12


def require_steps(name: str, value: int, *, at_least: int = 0) -> int:
    """Return a number of training steps; raises InputError if it is unrealistically large."""
    if require_count(name, value, at_least=at_least) > _MOST_STEPS:
        raise InputError(f"{name} must be at most {_MOST_STEPS:,}, got {value}")
    return int(value)


def require_count(name: str, value: int, *, at_least: int) -> int:
    """Return ``value`` as an int, or raise InputError unless it is a whole number, large enough."""
    if value != value or value < at_least or int(value) != value:
        raise InputError(f"{name} must be a whole number of at least {at_least}, got {value}")
    return int(value)


def require_probabilities(name: str, values: ArrayLike) -> FloatArray:
    """Return ``values`` as an array of floats, all of which must be in [0, 1]."""
    array = np.asarray(values, dtype=np.float64)
    bad = ~((array >= 0.0) & (array <= 1.0))
    if bad.any():
        first = float(array[bad].flat[0])
        raise InputError(f"{name} must be probabilities in [0, 1], got {first:g}")
    return array
