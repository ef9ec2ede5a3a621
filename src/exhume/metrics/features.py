"""The quality of recovered features, by the measures of Liu et al. 2024, with the truth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.errors import InputError


def projection_residual(features: FloatArray, recovered: FloatArray) -> float:
    """Return the mean over ``features`` (B, d) of ‖P⊥z‖/‖z‖, P⊥ off the span of ``recovered``.

    Liu et al. 2024, section 5.1 (Table 2): the part of each feature, scaled to norm 1, outside the
    span of the recovered ones. In [0, 1]. It depends only on the span of ``recovered`` (·, d), not
    on order, sign or length: compare ``matched_cosines``.

    >>> recovered = np.array([[2.0, 0.0, 0.0], [1.0, 1.0, 0.0]])
    >>> round(projection_residual(np.array([[1.0, 0.0, 1.0], [0.0, 5.0, 0.0]]), recovered), 6)
    0.353553
    """
    _require_alike(features, recovered)
    left, sizes, _ = np.linalg.svd(_unit(recovered).T, full_matrices=False)
    basis = left[:, sizes > 1e-12 * sizes[0]] if sizes.size else left
    unit = _unit(features)
    away = unit - (unit @ basis) @ basis.T
    return float(np.linalg.norm(away, axis=1).mean())


@dataclass(frozen=True, eq=False)
class Matched:
    """For each of B features the index of its partner (B,), and their cosine (B,)."""

    indices: Array
    cosines: FloatArray


def matched_cosines(features: FloatArray, recovered: FloatArray) -> Matched:
    """Pair ``features`` (B, d) with ``recovered`` (≥ B, d) so that the cosines' sum is largest.

    >>> matched_cosines(np.eye(2), np.array([[0.0, 3.0], [1.0, 0.0]])).indices.tolist()
    [1, 0]
    """
    from scipy.optimize import linear_sum_assignment

    cosines = _cosines(features, recovered)
    rows, columns = linear_sum_assignment(-cosines)
    return Matched(columns, cosines[rows, columns])


def _cosines(features: FloatArray, recovered: FloatArray) -> FloatArray:
    _require_alike(features, recovered)
    if len(recovered) < len(features):
        raise InputError(f"{len(features)} features can't be matched to {len(recovered)}")
    found: FloatArray = _unit(features) @ _unit(recovered).T
    return found


def _require_alike(features: FloatArray, recovered: FloatArray) -> None:
    shapes = np.shape(features), np.shape(recovered)
    if any(len(shape) != 2 for shape in shapes) or shapes[0][1] != shapes[1][1]:
        raise InputError(f"features must be (B, d) and (·, d), got {shapes[0]} and {shapes[1]}")


def _unit(rows: FloatArray) -> FloatArray:
    rows = np.asarray(rows, dtype=np.float64)
    unit: FloatArray = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
    return unit
