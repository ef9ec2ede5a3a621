"""Final Gauss–Newton steps: if a release determines the batch, only rounding remains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from exhume.attacks.gradients.matching.loop import MatchingProblem
from exhume.derivatives.jacobian import JacobianProducts

DAMPINGS = tuple(10.0**power for power in range(-13, 0, 2))
LARGEST = 4096
"""The most unknowns: with more, the normal matrix takes over a minute."""
AT_ONCE = 64


@dataclass(frozen=True, eq=False)
class Polished:
    """The end point: ``images``, their relative residual, and the number of Jacobians."""

    images: Tensor
    residual: float
    jacobians: int


def polish(
    problem: MatchingProblem,
    rough: MatchingProblem,
    images: Tensor,
    labels: Tensor,
    rng: np.random.Generator,
    *,
    iterations: int = 6,
    corrections: int = 3,
    enough: float = 0.0,
) -> Polished:
    """Solve release(images) = released by Levenberg–Marquardt, inside the box.

    ``problem`` (double precision) gives residuals. ``rough`` gives the Jacobian, whose products
    with blocks of unit vectors form the whole matrix. If the release is much longer than the batch,
    a random sketch with eight rows per unknown replaces it (Clarkson and Woodruff 2013). A step is
    accepted only if it lowers the exact residual. Batches of more than 4,096 numbers are returned
    unchanged.
    """
    state = _Images(problem, images, labels)
    if images.numel() > LARGEST:
        return Polished(images, state.residual, 0)
    taken = 0
    for _ in range(iterations):
        if state.residual <= enough or not math.isfinite(state.residual):
            break
        before, taken = state.residual, taken + 1
        jacobian = _jacobian(rough, state.images, labels, rng)
        if not state.improve(jacobian, corrections) or state.residual > 0.9 * before:
            break
    return Polished(state.images, state.residual, taken)


class _Images:
    """The images, and the exact residual at them."""

    def __init__(self, problem: MatchingProblem, images: Tensor, labels: Tensor) -> None:
        self.problem, self.labels = problem, labels
        self.target = _flat(problem.released.values)
        self.images = images.detach()
        self.difference = self._difference(self.images)
        self.residual = float(self.difference.norm())

    def improve(self, jacobian: Tensor, corrections: int) -> bool:
        """Step with one Jacobian, then reuse it while that lowers the residual."""
        factor = self._damped(_normal(jacobian))
        if factor is None:
            return False
        for _ in range(corrections):
            before = self.residual
            if not self._take(self._moved(factor)) or self.residual > 0.5 * before:
                break
        return True

    def _damped(self, normal: Tensor) -> Tensor | None:
        """Take the best step over a list of dampings, and return its factor."""
        unit = float(normal.diagonal().mean())
        identity = torch.eye(len(normal), dtype=normal.dtype, device=normal.device)
        start, best, kept = self.residual, self.residual, None
        step: tuple[Tensor, Tensor, float] | None = None
        for damping in DAMPINGS:
            factor: Tensor
            factor, failed = torch.linalg.cholesky_ex(normal + damping * unit * identity)
            moved = None if int(failed) else self._moved(factor)
            if moved is not None and moved[2] < best:
                best, step, kept = moved[2], moved, factor
            elif kept is not None:
                break
            if best < 0.3 * start:
                break
        if step is not None:
            self._take(step)
        return kept

    def _moved(self, factor: Tensor) -> tuple[Tensor, Tensor, float]:
        """Return the end point of a step, its residual, and the residual's norm."""
        slope = self._slope()[:, None].to(factor.dtype)
        move = torch.cholesky_solve(slope, factor)[:, 0].to(self.images.dtype)
        moved = self.images + move.reshape(self.images.shape)
        if self.problem.frame.box is not None:
            moved = moved.clamp(*self.problem.frame.box)
        moved = self.problem.completed(moved)
        difference = self._difference(moved)
        return moved, difference, float(difference.norm())

    def _take(self, step: tuple[Tensor, Tensor, float]) -> bool:
        if not step[2] < self.residual:
            return False
        self.images, self.difference, self.residual = step
        return True

    def _difference(self, images: Tensor) -> Tensor:
        return self.target - _flat(self.problem.simulate(images, self.labels)).detach()

    def _slope(self) -> Tensor:
        """Return Jᵀ(released − simulated), exactly."""
        images = self.images.detach().requires_grad_(True)
        found = _flat(self.problem.simulate(self.problem.completed(images), self.labels))
        return torch.autograd.grad(found, images, self.difference)[0].reshape(-1)


def _jacobian(
    problem: MatchingProblem, images: Tensor, labels: Tensor, rng: np.random.Generator
) -> Tensor:
    """Return J (outputs, inputs), or a sketch of it."""
    products = release_products(problem, images.to(problem.frame.dtype), labels)
    inputs, outputs = images.numel(), products.outputs
    rows = min(outputs, 8 * inputs + 64)
    bucket = torch.as_tensor(rng.integers(0, rows, outputs))
    sign = torch.as_tensor(rng.choice([-1.0, 1.0], outputs), dtype=problem.frame.dtype)
    made = torch.empty((inputs, rows), dtype=problem.frame.dtype)
    for start in range(0, inputs, AT_ONCE):
        count = min(AT_ONCE, inputs - start)
        units = torch.zeros((count, inputs), dtype=problem.frame.dtype)
        units[torch.arange(count), start + torch.arange(count)] = 1.0
        block = products.times(units)
        if rows < outputs:
            block = torch.zeros((count, rows), dtype=block.dtype).index_add_(
                1, bucket, block * sign
            )
        made[start : start + count] = block
    return made.T


def _normal(jacobian: Tensor) -> Tensor:
    """Return JᵀJ in double precision, computed in blocks of rows."""
    inputs = jacobian.shape[1]
    total = torch.zeros((inputs, inputs), dtype=torch.float64)
    for start in range(0, len(jacobian), 4096):
        block = jacobian[start : start + 4096].double()
        total.addmm_(block.T, block)
    return total


def release_products(problem: MatchingProblem, images: Tensor, labels: Tensor) -> JacobianProducts:
    """Return products with the Jacobian of the simulated release at ``images``."""
    if labels.is_floating_point():
        labels = labels.to(images.dtype)
    return JacobianProducts(
        lambda at: _flat(problem.simulate(problem.completed(at), labels)), images
    )


def _flat(parts: Sequence[Tensor]) -> Tensor:
    return torch.cat([part.reshape(-1) for part in parts])
