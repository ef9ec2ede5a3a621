"""The tensor method: features from the Hermite moments of a random head's gradient.

Hermite coefficients of the activation decide which moments contain the features. The small
symmetric moments share their directions; Jennrich starts and a joint fit decompose them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from exhume.attacks.gradients.features.first_order import HeadRegression, first_order
from exhume.attacks.gradients.features.head import Head, ResponseKind
from exhume.derivatives.activations import KINKS, value_and_slope
from exhume.models.base import Activation
from exhume.protocol.arrays import FloatArray
from exhume.protocol.errors import InputError

ORDERS = 5
_ZERO = 1e-9
"""A coefficient counts as 0 below this share of the largest one: quadrature reaches 1e-14."""


@dataclass(frozen=True)
class MomentRoute:
    """The Hermite moments to use: k₂ for the span, k₃ to separate the features.

    ``span_order`` k₂ and ``tensor_order`` k₃ are the first orders from 2 and from 3 on whose
    coefficient is not 0 (Liu et al. 2024, Assumption B.1). ``slope`` is E[σ′], ``curvature`` E[σ″].
    """

    span_order: int
    tensor_order: int
    slope: float
    curvature: float


@cache
def coefficients(activation: Activation) -> tuple[float, ...]:
    """Return E[σ(z) Heₖ(z)] = E[σ⁽ᵏ⁾(z)] for k = 0 … 4 and z ~ N(0, 1) (Stein's lemma).

    Gauss–Legendre on panels of width ¼ over [−12, 12], cut at the activation's corners.

    >>> [abs(round(c, 6)) for c in coefficients(Activation.RELU)]  # 1/√2π, ½, 1/√2π, 0, −1/√2π
    [0.398942, 0.5, 0.398942, 0.0, 0.398942]
    """
    edges = np.unique([*np.arange(-12.0, 12.01, 0.25), *KINKS.get(activation, ())])
    nodes, weights = np.polynomial.legendre.leggauss(16)
    half, middle = np.diff(edges)[:, None] / 2, (edges[1:] + edges[:-1])[:, None] / 2
    z = (middle + half * nodes).ravel()
    density = (half * weights).ravel() * np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    weighted = density * value_and_slope(activation, z)[0]
    each = np.eye(ORDERS)
    return tuple(float(weighted @ np.polynomial.hermite_e.hermeval(z, row)) for row in each)


def route(activation: Activation) -> MomentRoute:
    """Choose the moments for an activation; raises InputError if none up to order 4 works.

    >>> chosen = route(Activation.RELU)
    >>> chosen.span_order, chosen.tensor_order
    (2, 4)
    """
    found = coefficients(activation)
    threshold = _ZERO * max(abs(c) for c in found)
    alive = [k for k, c in enumerate(found) if abs(c) > threshold]
    span = min((k for k in alive if k >= 2), default=ORDERS)
    tensor = min((k for k in alive if k >= 3), default=ORDERS)
    if span > 3 or tensor > 4:
        raise InputError(
            f"the Hermite coefficients of {activation.value} vanish at orders 2 and 3, or 3 and 4: "
            "the tensor method needs k₂ ≤ 3 and k₃ ≤ 4"
        )
    return MomentRoute(span, tensor, found[1], found[2])


_STARTS = 24
_TRIED = 4


@dataclass(frozen=True, eq=False)
class Moments:
    """``second`` P (K, B, B) ≈ Σᵢ pₖᵢ uᵢuᵢᵀ and ``third`` T (K, B, B, B) ≈ Σᵢ tₖᵢ uᵢ⊗uᵢ⊗uᵢ."""

    second: FloatArray
    third: FloatArray

    @property
    def total(self) -> float:
        """The sum of the squared norms of both."""
        return float((self.second**2).sum() + (self.third**2).sum())


@dataclass(frozen=True, eq=False)
class Decomposition:
    """``directions`` uᵢ (B, B) of norm 1, weights ``second``, ``third`` (B, K), relative loss."""

    directions: FloatArray
    second: FloatArray
    third: FloatArray
    loss: float


def decompose(moments: Moments, count: int, *, rng: np.random.Generator) -> Decomposition:
    """Fit ``count`` directions to both moments at once, with free weights.

    Starts are eigenvectors of M₁M₂⁻¹ for random contractions M of the moments (Jennrich's
    algorithm, which Kuleshov et al. 2015 analyse under noise). L-BFGS refines the best few, with
    the weights eliminated.
    """
    starts = [_jennrich(moments, count, rng) for _ in range(_STARTS)]
    starts.sort(key=lambda start: _loss(moments, start)[0])
    fits = [_refined(moments, start) for start in starts[:_TRIED]]
    return min(fits, key=lambda fit: fit.loss)


def _jennrich(moments: Moments, count: int, rng: np.random.Generator) -> FloatArray:
    slices = np.concatenate(
        [moments.second, moments.third.transpose(0, 3, 1, 2).reshape(-1, count, count)]
    )
    one, other = (np.tensordot(rng.standard_normal(len(slices)), slices, 1) for _ in range(2))
    ratio = one @ np.linalg.pinv(other)
    if not np.isfinite(ratio).all():
        return rng.standard_normal((count, count))
    vectors = np.linalg.eig(ratio)[1]
    # Noise can make eigenvalues complex; real and imaginary part then span the two features.
    turned = np.where(np.arange(count) % 2, vectors.imag, vectors.real)
    found = np.where(np.abs(vectors.imag).max(axis=0) > 1e-12, turned, vectors.real)
    return _unit_rows(found.T)


def _refined(moments: Moments, start: FloatArray) -> Decomposition:
    from scipy.optimize import minimize

    def loss(flat: FloatArray) -> tuple[float, FloatArray]:
        value, slope, _, _ = _loss(moments, flat.reshape(start.shape))
        return value, slope.ravel()

    options = {"maxiter": 200, "ftol": 1e-12, "gtol": 1e-9}
    found = minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", options=options)
    directions = _unit_rows(found.x.reshape(start.shape))
    value, _, second, third = _loss(moments, directions)
    return Decomposition(directions, second, third, value)


def _loss(moments: Moments, raw: FloatArray) -> tuple[float, FloatArray, FloatArray, FloatArray]:
    """Return the relative loss at directions ``raw`` (B, B), its gradient, and both weights."""
    total = max(moments.total, 1e-300)
    norms = np.maximum(np.linalg.norm(raw, axis=1, keepdims=True), 1e-300)
    u = raw / norms
    gram = u @ u.T
    # u along the last index, then along the one before: (K, B, features).
    along2 = moments.second @ u.T
    along3 = ((moments.third @ u.T) * u.T).sum(axis=2)
    seen2, seen3 = (along2 * u.T).sum(axis=1).T, (along3 * u.T).sum(axis=1).T
    p, t = _weights(gram**2, seen2), _weights(gram**3, seen3)
    fitted = float((p * seen2).sum() + (t * seen3).sum())
    slope = 4.0 * (((p @ p.T) * gram) @ u - np.einsum("ik,kai->ia", p, along2))
    slope += 6.0 * (((t @ t.T) * gram**2) @ u - np.einsum("ik,kai->ia", t, along3))
    slope = (slope - (slope * u).sum(axis=1, keepdims=True) * u) / norms
    return float(1.0 - fitted / total), slope / total, p, t


def _weights(gram: FloatArray, moments: FloatArray) -> FloatArray:
    solved: FloatArray = np.linalg.solve(gram + 1e-10 * np.eye(len(gram)), moments)
    return solved


def _unit_rows(rows: FloatArray) -> FloatArray:
    norms: FloatArray = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
    return rows / norms


_EXTRA = 4
_CHUNK = 4096


@dataclass(frozen=True, eq=False)
class TensorFit:
    """``features`` (B, d), directions of norm 1, and the unexplained share of the moments.

    ``loss`` is relative to the moments' squared norm. It is mostly their own sampling error.
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

    The second moments give the span. The third (or the fourth along one direction) give the
    features in it, by a joint fit of both. The K outputs are rotated to their principal axes and
    stacked. The error is O(B√(d/m)). Signs come from the first order or, for classes, from the fact
    that a record's own label has its largest residual. ``entry_weights`` (m, K) are the weights of
    entries if a defence removed some (``moment_weights``). No array of size d² or more is formed:
    memory is a copy of W and a (4096, K·B²) block.
    """
    if count > head.dimension:
        raise InputError(f"{count} features of dimension {head.dimension} can't be separated")
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


def _stacked(
    order: HeadRegression, gradient: FloatArray, count: int
) -> tuple[HeadRegression, FloatArray]:
    """Rotate the outputs so that at most ``count`` of them contain all of the features."""
    size = max(float(np.abs(gradient).max()), 1e-300)
    _, _, right = np.linalg.svd(gradient / size, full_matrices=False)
    axes = right[:count].T
    rotated = HeadRegression(
        order.intercept @ axes, order.slopes @ axes / size, order.rest @ axes / size
    )
    return rotated, axes


def _span(
    weights: FloatArray,
    order: HeadRegression,
    chosen: MomentRoute,
    count: int,
    rng: np.random.Generator,
    *,
    steps: int = 20,
) -> FloatArray:
    """Return an orthonormal basis (d, count) of the features' span.

    Uses orthogonal iteration on Σₖ Pₖ². Pₖ is the moment of order k₂, contracted with the
    first-order direction if k₂ = 3. It is only multiplied, never formed.
    """
    tilted = order.rest
    if chosen.span_order == 3:
        tilted = order.rest * (weights @ _unit_vectors(order.slopes))
    dimension = weights.shape[1]
    columns = min(count + _EXTRA, dimension)
    drawn = rng.standard_normal((dimension, columns)) / np.sqrt(dimension)
    basis = np.linalg.qr(np.concatenate([_unit_vectors(order.slopes), drawn], axis=1)[:, :columns])[
        0
    ]
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


def _moments(
    projected: FloatArray, slopes: FloatArray, rest: FloatArray, chosen: MomentRoute
) -> Moments:
    """Return the projected moments: P (K, B, B) and T (K, B, B, B).

    ``rest`` has zero mean and first moment, so H₂ and H₃ need no correction; H₄ along a does:
    the symmetrised I ⊗ Pa and a ⊗ P.
    """
    width = len(projected)
    along = _unit_vectors(slopes.T)
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
    """Give each direction the sign that the first order shows.

    Even moments determine the residuals' signs (k₂ = 2), the first order the signs of residual
    times direction. If all moments are odd, a class's largest residual is its label's and negative.
    """
    linear = np.linalg.lstsq(directions.T, slopes.T, rcond=None)[0]
    chosen = route(head.activation)
    if chosen.span_order == 2:
        agreement = (linear * second).sum(axis=1) * chosen.slope * chosen.curvature
    elif head.response is ResponseKind.CLASSES:
        residuals = linear @ axes.T * chosen.slope
        largest = np.abs(residuals).argmax(axis=1)
        agreement = -residuals[np.arange(len(residuals)), largest]
    else:
        agreement = np.ones(len(directions))
    return directions * np.where(agreement < 0, -1.0, 1.0)[:, None]


def _unit_vectors(columns: FloatArray) -> FloatArray:
    unit: FloatArray = columns / np.maximum(np.linalg.norm(columns, axis=0, keepdims=True), 1e-300)
    return unit
