"""The tensor method: features from the Hermite moments of a random head's gradient."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exhume.arrays import FloatArray
from exhume.attacks.features.decomposition import Moments, decompose
from exhume.attacks.features.first_order import FirstOrder, first_order
from exhume.attacks.features.head import Head, Response
from exhume.attacks.features.hermite import Route, route
from exhume.errors import InputError

_EXTRA = 4
_CHUNK = 4096


@dataclass(frozen=True, eq=False)
class TensorFit:
    """``features`` (B, d), directions of norm 1, and how much of the moments they leave.

    ``loss`` is relative to the moments' squared norm: mostly the moments' own sampling error.
    """

    features: FloatArray
    loss: float


def tensor_features(
    head: Head,
    gradient: FloatArray,
    count: int,
    *,
    rng: np.random.Generator,
    entry_weights: FloatArray | None = None,
) -> TensorFit:
    """Recover ``count`` directions from ``gradient`` (m, K) (Liu et al. 2024, appendix B.1).

    The span from the second moments, the features in it from the third (or the fourth along one
    direction), by a joint fit of both. The K outputs are rotated to their principal axes and
    stacked. Error O(B√(d/m)); signs are read from the first order or, for classes, from the fact
    that a record's own label has its largest residual. ``entry_weights`` (m, K) say how much an
    entry counts, where a defence left holes (``moment_weights``). Nothing of size d² ×
    anything is formed: memory is a copy of W and a (4096, K·B²) block.
    """
    if count > head.dimension:
        raise InputError(f"{count} features of dimension {head.dimension} can't be told apart")
    chosen = route(head.activation)
    order = first_order(head, gradient, entry_weights)
    stacked, axes = _stacked(order, gradient[head.moment_rows], count)
    weights = head.weights[head.moment_rows]
    basis = _span(weights, stacked, chosen, count, rng)
    moments = _moments(weights @ basis, stacked.slopes.T @ basis, stacked.rest, chosen)
    found = decompose(moments, count, rng=rng)
    directions = _signed(found.directions, found.second, stacked.slopes.T @ basis, axes, head)
    features = directions @ basis.T
    norms = np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-300)
    return TensorFit(features / norms, found.loss)


def _stacked(order: FirstOrder, gradient: FloatArray, count: int) -> tuple[FirstOrder, FloatArray]:
    """Rotate the outputs so that at most ``count`` of them hold all of the features."""
    size = max(float(np.abs(gradient).max()), 1e-300)
    _, _, right = np.linalg.svd(gradient / size, full_matrices=False)
    axes = right[:count].T
    rotated = FirstOrder(
        order.intercept @ axes, order.slopes @ axes / size, order.rest @ axes / size
    )
    return rotated, axes


def _span(
    weights: FloatArray,
    order: FirstOrder,
    chosen: Route,
    count: int,
    rng: np.random.Generator,
    *,
    steps: int = 20,
) -> FloatArray:
    """Orthogonal iteration on Σₖ Pₖ²: an orthonormal basis (d, count) of the features' span.

    Pₖ is the moment of order k₂, contracted with the first-order direction where k₂ = 3; it is only
    ever multiplied, never formed.
    """
    tilted = order.rest
    if chosen.span_order == 3:
        tilted = order.rest * (weights @ _unit(order.slopes))
    dimension = weights.shape[1]
    columns = min(count + _EXTRA, dimension)
    drawn = rng.standard_normal((dimension, columns)) / np.sqrt(dimension)
    basis = np.linalg.qr(np.concatenate([_unit(order.slopes), drawn], axis=1)[:, :columns])[0]
    for _ in range(steps):
        image = _squared(weights, tilted, basis)
        new = np.linalg.qr(image)[0]
        settled = np.linalg.norm(new - basis @ (basis.T @ new)) < 1e-4
        basis = new
        if settled:
            break
    _, vectors = np.linalg.eigh(basis.T @ _squared(weights, tilted, basis))
    span: FloatArray = basis @ vectors[:, ::-1][:, :count]
    return span


def _squared(weights: FloatArray, tilted: FloatArray, basis: FloatArray) -> FloatArray:
    """Return Σₖ Pₖ Pₖ V for V = ``basis`` (d, r), the outputs side by side in blocks of rows."""
    (width, dimension), (_, outputs), columns = weights.shape, tilted.shape, basis.shape[1]
    once = np.zeros((dimension, outputs * columns))
    for rows in _blocks(width):
        answers = weights[rows] @ basis
        spread = (tilted[rows, :, None] * answers[:, None, :]).reshape(-1, outputs * columns)
        once += weights[rows].T @ spread
    twice: FloatArray = np.zeros_like(basis)
    for rows in _blocks(width):
        back: FloatArray = (weights[rows] @ once).reshape(-1, outputs, columns)
        twice += weights[rows].T @ np.einsum("mk,mkr->mr", tilted[rows], back)
    return np.asarray(twice / width**2)


def _blocks(width: int) -> list[slice]:
    return [slice(begin, begin + _CHUNK) for begin in range(0, width, _CHUNK)]


def _moments(projected: FloatArray, slopes: FloatArray, rest: FloatArray, chosen: Route) -> Moments:
    """Return the projected moments: P (K, B, B) and T (K, B, B, B).

    ``rest`` has neither mean nor first moment, so H₂ and H₃ need no correction; H₄ along a does:
    the symmetrised I ⊗ Pa and a ⊗ P.
    """
    width = len(projected)
    along = _unit(slopes.T)
    second = np.einsum("mk,ma,mb->kab", rest, projected, projected, optimize=True) / width
    tilted = rest * (projected @ along)
    fourth = chosen.tensor_order == 4
    third = _third(projected, tilted if fourth else rest)
    if fourth:
        third -= _correction(second, along.T)
    if chosen.span_order == 3:
        second = np.einsum("mk,ma,mb->kab", tilted, projected, projected, optimize=True) / width
    return Moments(second, third)


def _third(projected: FloatArray, rest: FloatArray) -> FloatArray:
    width, count = projected.shape
    total = np.zeros((rest.shape[1], count, count, count))
    for rows in _blocks(width):
        part, weight = projected[rows], rest[rows]
        pairs = (part[:, :, None] * part[:, None, :]).reshape(len(part), -1)
        scaled = (weight[:, :, None] * part[:, None, :]).reshape(len(part), -1)
        total += (scaled.T @ pairs).reshape(total.shape)
    mean: FloatArray = total / width
    return mean


def _correction(second: FloatArray, along: FloatArray) -> FloatArray:
    """Return H₄'s terms of second order, contracted with a (K, B) in the last index."""
    tilted = np.einsum("kab,kb->ka", second, along)
    identity = np.eye(second.shape[1])
    total = np.zeros((*second.shape, second.shape[1]))
    for left, right in ((identity[None], tilted), (second, along)):
        outer = left[:, :, :, None] * right[:, None, None, :]
        total += outer + outer.transpose(0, 1, 3, 2) + outer.transpose(0, 3, 2, 1)
    return total


def _signed(
    directions: FloatArray,
    second: FloatArray,
    slopes: FloatArray,
    axes: FloatArray,
    head: Head,
) -> FloatArray:
    """Turn each direction the way the first order points.

    Even moments tell the residuals' signs (k₂ = 2), the first order the signs of residual times
    direction. Where all moments are odd, a class's largest residual is its label's, and negative.
    """
    linear = np.linalg.lstsq(directions.T, slopes.T, rcond=None)[0]
    chosen = route(head.activation)
    if chosen.span_order == 2:
        agreement = (linear * second).sum(axis=1) * chosen.slope * chosen.curvature
    elif head.response is Response.CLASSES:
        residuals = linear @ axes.T * chosen.slope
        largest = np.abs(residuals).argmax(axis=1)
        agreement = -residuals[np.arange(len(residuals)), largest]
    else:
        agreement = np.ones(len(directions))
    return directions * np.where(agreement < 0, -1.0, 1.0)[:, None]


def _unit(columns: FloatArray) -> FloatArray:
    unit: FloatArray = columns / np.maximum(np.linalg.norm(columns, axis=0, keepdims=True), 1e-300)
    return unit
