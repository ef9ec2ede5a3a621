"""The lower level for an affine classifier, solved exactly by Newton's and Woodbury's methods.

θ(x) minimises mean softplus(−yᵢ(⟨xᵢ, w⟩ + b)) + (decay / 2)·‖(w, b)‖².
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from exhume.protocol.arrays import FloatArray
from exhume.protocol.errors import InputError


@dataclass(frozen=True, eq=False)
class AffineLevel:
    """Training of an affine classifier on few records with labels ``signs`` (n,) in {−1, 1}.

    All computations use n × n matrices, never d × d ones.
    """

    signs: FloatArray
    decay: float

    def __post_init__(self) -> None:
        if not self.decay > 0:
            raise InputError(f"the weight decay must be positive, got {self.decay}")

    def train(self, x: FloatArray, start: FloatArray | None = None) -> FloatArray:
        """Return the minimiser (d + 1,) for records ``x`` (n, d), to rounding error."""
        design = _with_ones(x)
        return self._trained(design, design @ design.T, start)

    def hypergradient(
        self, x: FloatArray, theta: FloatArray, target: FloatArray
    ) -> tuple[float, FloatArray]:
        """Return ‖θ − θ*‖² and its gradient in ``x`` (n, d), where θ is ``train(x)``.

        By the implicit function theorem, dE/dx = −∂ₓ⟨∇_θ loss, p⟩ with H p = 2(θ − θ*).
        """
        design = _with_ones(x)
        return self._hypergradient(design, design @ design.T, theta, target)

    def evaluate(
        self, x: FloatArray, target: FloatArray, start: FloatArray | None = None
    ) -> tuple[FloatArray, float, FloatArray]:
        """Return ``train(x, start)`` and its ``hypergradient``, sharing the products of records."""
        design = _with_ones(x)
        gram = design @ design.T
        theta = self._trained(design, gram, start)
        return theta, *self._hypergradient(design, gram, theta, target)

    def _trained(
        self, design: FloatArray, gram: FloatArray, start: FloatArray | None
    ) -> FloatArray:
        # θ = designᵀ a at the minimum, so Newton's method needs only n unknowns.
        a = np.zeros(len(design)) if start is None else self._dual(design, start)
        for _ in range(100):
            scores = gram @ a
            slope, curvature = self._derivatives(scores)
            residual = slope + self.decay * a
            system = curvature[:, None] * gram + self.decay * np.eye(len(design))
            step = np.linalg.solve(system, residual)
            a = a - self._damped(gram, a, step) * step
            if np.linalg.norm(step) <= 1e-14 * (1.0 + np.linalg.norm(a)):
                break
        return np.asarray(design.T @ a)

    def _hypergradient(
        self, design: FloatArray, gram: FloatArray, theta: FloatArray, target: FloatArray
    ) -> tuple[float, FloatArray]:
        gap = theta - target
        p = self._inverse_hessian(design, gram, theta, 2.0 * gap)
        scores = design @ theta
        slope, curvature = self._derivatives(scores)
        along = design @ p
        gradient = -(
            slope[:, None] * p[None, :-1] + (curvature * along)[:, None] * theta[None, :-1]
        )
        return float(gap @ gap), gradient

    def _inverse_hessian(
        self, design: FloatArray, gram: FloatArray, theta: FloatArray, right: FloatArray
    ) -> FloatArray:
        """Solve (designᵀ C design + decay) p = right by Woodbury's identity."""
        curvature = self._derivatives(design @ theta)[1]
        inner = self.decay * np.eye(len(design)) + curvature[:, None] * gram
        correction = np.linalg.solve(inner, curvature * (design @ right))
        return np.asarray((right - design.T @ correction) / self.decay)

    def _derivatives(self, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the mean loss's first and second derivative in each score, both (n,)."""
        chance = expit(-self.signs * scores)
        count = len(self.signs)
        return -self.signs * chance / count, chance * (1.0 - chance) / count

    def _objective(self, gram: FloatArray, a: FloatArray) -> float:
        scores = gram @ a
        loss = np.mean(np.logaddexp(0.0, -self.signs * scores))
        return float(loss + 0.5 * self.decay * a @ scores)

    def _damped(self, gram: FloatArray, a: FloatArray, step: FloatArray) -> float:
        """Return the largest halving of the step that does not raise the objective."""
        value, fraction = self._objective(gram, a), 1.0
        while fraction > 1e-8:
            if self._objective(gram, a - fraction * step) <= value + 1e-14 * abs(value):
                return fraction
            fraction *= 0.5
        return 0.0

    def _dual(self, design: FloatArray, theta: FloatArray) -> FloatArray:
        """Return the coefficients a of the stationarity condition at ``theta``."""
        return -self._derivatives(design @ theta)[0] / self.decay


def _with_ones(x: FloatArray) -> FloatArray:
    return np.column_stack([x, np.ones(len(x))])
