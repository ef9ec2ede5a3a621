"""Leading singular triplets of a path's Jacobian: Golub–Kahan bidiagonalisation from a residual."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from exhume.attacks.trajectory.unrolled import Path


@dataclass(frozen=True, eq=False)
class Triplets:
    """J ≈ Σ sᵢ uᵢ vᵢᵀ: ``left`` (m, k), ``values`` (k,) largest first, ``right`` (R, k)."""

    left: Tensor
    values: Tensor
    right: Tensor


def bidiagonalise(path: Path, residual: Tensor, moving: Tensor, *, steps: int) -> Triplets | None:
    """Return ``steps`` triplets of J · diag(moving), from the Krylov space that starts at r.

    That space holds the least-squares solution's best approximations (Paige and Saunders 1982), and
    every damping of it is free once the small matrix is decomposed. Fully reorthogonalised; the
    products are in the path's precision, the result in the residual's. None where J is 0.
    """
    basis = _Basis(path, residual, moving, steps)
    while basis.grow():
        pass
    return basis.triplets()


class _Basis:
    """J V = U B, B lower bidiagonal: a column of U and V a step."""

    def __init__(self, path: Path, residual: Tensor, moving: Tensor, steps: int) -> None:
        self.path, self.moving, self.steps = path, moving, min(steps, int(moving.sum()))
        self.dtype = residual.dtype
        self.left = residual.new_empty(len(residual), self.steps + 1)
        self.right = residual.new_empty(len(moving), self.steps)
        self.matrix = residual.new_zeros(self.steps + 1, self.steps)
        length = residual.norm()
        self.lefts, self.rights = 0, 0
        if bool(length > 0) and self.steps:
            self.left[:, 0], self.lefts = residual / length, 1

    def grow(self) -> bool:
        """Add a column to V and one to U; return whether there is more."""
        k = self.rights
        if k == self.steps or self.lefts <= k:
            return False
        back = self.path.vjp(self.left[:, k].to(self.path.theta.dtype)).to(self.dtype)
        v, length = _orthogonalised(back * self.moving, self.right[:, :k])
        if not self._counts(length):
            return False
        self.right[:, k], self.matrix[k, k], self.rights = v / length, length, k + 1
        there = self.path.jvp(self.right[:, k].to(self.path.theta.dtype)).to(self.dtype)
        u, length = _orthogonalised(there, self.left[:, : k + 1])
        if not bool(torch.isfinite(length)):
            self.rights = k
            return False
        # By the recurrence only one entry is left of these; measured, they hold in any precision.
        self.matrix[: k + 1, k] = self.left[:, : k + 1].T @ there
        if not self._counts(length):
            return False
        self.left[:, k + 1], self.matrix[k + 1, k], self.lefts = u / length, length, k + 2
        return True

    def triplets(self) -> Triplets | None:
        """Return the singular triplets of U B Vᵀ."""
        if not self.rights:
            return None
        small = self.matrix[: self.lefts, : self.rights]
        p, values, q = torch.linalg.svd(small, full_matrices=False)
        left, right = self.left[:, : self.lefts] @ p, self.right[:, : self.rights] @ q.T
        kept = values > 1e-9 * values[0]
        return Triplets(left[:, kept], values[kept], right[:, kept])

    def _counts(self, length: Tensor) -> bool:
        largest = self.matrix[0, 0] if self.rights else length
        return bool(torch.isfinite(length)) and bool(length > 1e-7 * largest) and bool(length > 0)


def _orthogonalised(vector: Tensor, basis: Tensor) -> tuple[Tensor, Tensor]:
    for _ in range(2):
        vector = vector - basis @ (basis.T @ vector)
    return vector, vector.norm()
