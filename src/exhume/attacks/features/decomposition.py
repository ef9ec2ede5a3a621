"""Decomposing small symmetric moments that share their directions: Jennrich starts, joint fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exhume.arrays import FloatArray

_STARTS = 24
_TRIED = 4


@dataclass(frozen=True, eq=False)
class Moments:
    """``second`` P (K, B, B) ≈ Σᵢ pₖᵢ uᵢuᵢᵀ and ``third`` T (K, B, B, B) ≈ Σᵢ tₖᵢ uᵢ⊗uᵢ⊗uᵢ."""

    second: FloatArray
    third: FloatArray

    @property
    def total(self) -> float:
        """The squared norm of both."""
        return float((self.second**2).sum() + (self.third**2).sum())


@dataclass(frozen=True, eq=False)
class Decomposition:
    """``directions`` uᵢ (B, B) of norm 1, weights ``second``, ``third`` (B, K), relative loss."""

    directions: FloatArray
    second: FloatArray
    third: FloatArray
    loss: float


def decompose(moments: Moments, count: int, *, rng: np.random.Generator) -> Decomposition:
    """Fit ``count`` directions to both moments at once, all weights free.

    Starts are eigenvectors of M₁M₂⁻¹ for random contractions M of the moments (Jennrich's
    algorithm, which Kuleshov et al. 2015 analyse under noise); the best few are refined by L-BFGS
    with the weights eliminated.
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
    # Noise can pair eigenvalues up; real and imaginary part then span what the two features do.
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
