"""Gaussian priors: their covariance as one number, one number per coordinate, or a matrix."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from exhume.protocol.arrays import FloatArray, require_finite
from exhume.protocol.errors import InputError


def checked_covariance(covariance: ArrayLike, dimension: int, what: str) -> FloatArray:
    """Return a positive definite matrix (dimension, dimension).

    ``covariance`` is one variance for all coordinates, one each (dimension,), or the matrix.
    """
    array = np.asarray(covariance, dtype=np.float64)
    if array.shape not in ((), (dimension,), (dimension, dimension)):
        raise InputError(
            f"{what} must be one variance, {dimension} variances or a matrix "
            f"({dimension}, {dimension}), got shape {array.shape}"
        )
    require_finite(array, what)
    if array.ndim < 2:
        array = np.diag(np.broadcast_to(array, (dimension,)))
    if not np.allclose(array, array.T, rtol=1e-8, atol=0.0):
        raise InputError(f"{what} must be symmetric")
    smallest = float(np.linalg.eigvalsh(array)[0])
    if smallest <= 0:
        raise InputError(f"{what} must be positive definite, its least eigenvalue is {smallest:g}")
    return array
