"""vᵀ(JᵀJ)⁻¹v from products with J alone: Golub–Kahan bidiagonalisation, many probes at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from exhume.protocol.arrays import FloatArray

Products: TypeAlias = Callable[[FloatArray], FloatArray]
"""Row by row: (rows, inputs) → (rows, outputs) for J, the reverse for its transpose."""


@dataclass(frozen=True)
class Operator:
    """A matrix J (outputs, inputs), known through its products with rows of vectors.

    Singular values of at most ``tolerance`` times the largest count as 0.
    """

    times: Products
    transposed_times: Products
    outputs: int
    inputs: int
    tolerance: float


@dataclass(frozen=True, eq=False)
class Quadrature:
    """vᵀ(JᵀJ)⁻¹v of each probe v, from below: ``values`` (probes,).

    ``shortfalls`` (probes,) estimate the missing part as a share of each value. ``singular`` says
    that J maps some direction to 0; the true value is then infinite.
    """

    values: FloatArray
    shortfalls: FloatArray
    singular: bool


def inverse_forms(
    operator: Operator, probes: FloatArray, *, steps: int, accuracy: float
) -> Quadrature:
    """Return vᵀ(JᵀJ)⁻¹v for each row v of ``probes`` (probes, inputs), never above the truth.

    k steps of the Golub–Kahan bidiagonalisation of J from v are the k-point Gauss rule of v's
    spectral measure (Golub and Meurant, Matrices, Moments and Quadrature, 2010, chapters 4 and 6).
    All even derivatives of 1/x are positive, so this rule is a lower bound. It is a sum of squares
    with one term per step, and reaches the exact value after at most ``inputs`` steps. It stops
    before ``steps`` once every estimated shortfall is below ``accuracy``.
    """
    steps = min(steps, operator.inputs)
    state = _Bidiagonalisation(operator, probes, steps)
    next_check = 8
    for step in range(steps):
        state.advance(step)
        if not state.running.any() or step + 1 == steps:
            break
        if step + 1 == next_check:
            if state.singular() or (state.shortfalls() < accuracy).all():
                break
            next_check += next_check // 2
    return Quadrature(state.values(), state.shortfalls(), state.singular())


class _Bidiagonalisation:
    """J P = Q B of all probes at once: a row of every array belongs to one probe."""

    def __init__(self, operator: Operator, probes: FloatArray, steps: int) -> None:
        self.operator = operator
        self.squared_lengths: FloatArray = (probes**2).sum(axis=1)
        self.right = probes / np.sqrt(self.squared_lengths)[:, None]
        self.left = operator.times(self.right)
        self.basis = np.empty((len(probes), steps, operator.inputs))
        self.diagonal: list[FloatArray] = []
        self.upper: list[FloatArray] = []
        self.coefficient = np.ones(len(probes))
        self.sums = np.zeros(len(probes))
        self.running = np.ones(len(probes), dtype=bool)
        self.annihilated = False

    def advance(self, step: int) -> None:
        """Add a column to B, and its term to the sum."""
        alpha = np.linalg.norm(self.left, axis=1)
        self.annihilated |= bool((self.running & (alpha == 0)).any())
        self.running &= alpha > 0
        alpha = np.where(self.running, alpha, 1.0)
        previous = -self.upper[-1] if self.upper else 1.0
        self.coefficient = np.where(self.running, previous * self.coefficient / alpha, 0.0)
        self.sums += self.coefficient**2
        self.left = self.left / alpha[:, None]
        self.diagonal.append(np.where(self.running, alpha, 0.0))
        self.basis[:, step] = self.right
        self._extend(step)

    def _extend(self, step: int) -> None:
        following = self.operator.transposed_times(self.left)
        following -= self.diagonal[-1][:, None] * self.right
        following = _orthogonalised(following, self.basis[:, : step + 1])
        beta = np.linalg.norm(following, axis=1)
        largest = np.max([*self.diagonal, *self.upper], axis=0)
        self.running &= beta > self.operator.tolerance * largest
        beta = np.where(self.running, beta, 0.0)
        self.upper.append(beta)
        scale = np.where(self.running, beta, 1.0)[:, None]
        self.right = np.where(self.running[:, None], following / scale, 0.0)
        self.left = self.operator.times(self.right) - beta[:, None] * self.left

    def values(self) -> FloatArray:
        """The Gauss rule's value for each probe so far."""
        return self.squared_lengths * self.sums

    def shortfalls(self) -> FloatArray:
        """The missing part is rᵀ(JᵀJ)⁻¹r for the residual r: estimated with B's smallest value."""
        residuals = self.upper[-1] * np.abs(self.coefficient)
        smallest = np.maximum(self._singular_values()[:, -1], np.finfo(float).tiny)
        with np.errstate(over="ignore"):
            missing = (residuals / smallest) ** 2 / np.where(self.sums > 0, self.sums, 1.0)
        return np.asarray(missing, dtype=np.float64)

    def singular(self) -> bool:
        """B's smallest singular value is never below J's smallest: a small one is a proof."""
        values = self._singular_values()
        small = values[:, -1] <= self.operator.tolerance * values[:, 0]
        return self.annihilated or bool(small.any())

    def _singular_values(self) -> FloatArray:
        probes, steps = len(self.sums), len(self.diagonal)
        matrices = np.zeros((probes, steps, steps))
        index = np.arange(steps)
        matrices[:, index, index] = np.array(self.diagonal).T
        matrices[:, index[:-1], index[1:]] = np.array(self.upper[:-1]).reshape(steps - 1, probes).T
        # A probe that ended early has no further columns: they must not look like zeros of J.
        ended = matrices[:, index, index] == 0
        ended[:, 0] = False
        matrices[:, index, index] += ended * matrices[:, :1, 0]
        return np.asarray(np.linalg.svd(matrices, compute_uv=False), dtype=np.float64)


def _orthogonalised(rows: FloatArray, basis: FloatArray) -> FloatArray:
    # Without this, rounding returns to converged directions, and the sum becomes too large.
    for _ in range(2):
        overlaps = basis @ rows[:, :, None]
        rows = rows - (overlaps.transpose(0, 2, 1) @ basis)[:, 0]
    return rows
