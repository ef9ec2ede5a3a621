"""The minimum of a negative log posterior by Levenberg–Marquardt, and its curvature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from exhume.protocol.arrays import Array, FloatArray


@dataclass(frozen=True, eq=False)
class Unknowns:
    """The ``free`` features of a target, and its response if ``free_response``, as one vector.

    All other entries stay as at the start: ``x`` (d,), ``response`` (outputs,).
    """

    x: FloatArray
    response: FloatArray
    free: Array
    free_response: bool

    @property
    def start(self) -> FloatArray:
        """The unknowns at the start."""
        return np.append(self.x[self.free], self.response if self.free_response else ())

    def target(self, unknowns: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the target's features and response."""
        x = self.x.copy()
        x[self.free] = unknowns[: len(self.free)]
        return x, unknowns[len(self.free) :] if self.free_response else self.response


@dataclass(frozen=True)
class Attempt:
    """A step: the decrease ``promised`` by the quadratic model, and the result.

    ``cost`` is the cost after the step if it was ``taken``, otherwise the cost before it.
    """

    taken: bool
    promised: float
    gained: float
    cost: float
    damping: float


@dataclass(frozen=True, eq=False)
class Minimum:
    """The end of the search, with the Laplace approximation there.

    ``variance`` is that of each unknown, ``volume`` half the log determinant of the Hessian.
    """

    unknowns: FloatArray
    cost: float
    converged: bool
    variance: FloatArray
    volume: float


def levenberg_marquardt(
    cost: Callable[[FloatArray], float],
    normal_equations: Callable[[FloatArray], tuple[FloatArray, FloatArray]],
    start: FloatArray,
    *,
    damping: float,
    steps: int,
    settled: Callable[[Attempt], bool],
) -> Minimum:
    """Minimise ``cost``; ``normal_equations`` gives its Gauss–Newton Hessian and its slope.

    The damping is Marquardt's, relative to the diagonal. It falls by a factor of ten after each
    step that lowers the cost, and rises by ten after any other. ``settled`` decides after each step
    whether the search has converged.
    """
    at, lowest, converged = start, cost(start), False
    hessian, slope = normal_equations(at)
    for _ in range(steps):
        step = _damped_solve(hessian, damping, slope)
        reached = cost(at - step)
        # NaN counts as a failure.
        taken, gained = bool(reached <= lowest), lowest - reached
        if taken:
            at, lowest = at - step, reached
        promised = 0.5 * float(step @ slope)
        if settled(Attempt(taken, promised, gained, lowest, damping)):
            converged = True
            break
        damping = max(0.1 * damping, 1e-16) if taken else 10.0 * damping
        if taken:
            hessian, slope = normal_equations(at)
    factor = _sturdy_factor(normal_equations(at)[0])
    variance = np.diag(cho_solve(factor, np.eye(len(at))))
    volume = float(np.sum(np.log(np.diag(factor[0]))))
    return Minimum(at, lowest, converged, variance, volume)


def _damped_solve(hessian: FloatArray, damping: float, slope: FloatArray) -> FloatArray:
    damped = hessian + damping * np.diag(np.diag(hessian) + 1e-300)
    return np.asarray(cho_solve(_sturdy_factor(damped), slope))


def _sturdy_factor(hessian: FloatArray) -> tuple[FloatArray, bool]:
    """Return the Cholesky factor; at extreme parameters rounding alone can make it fail."""
    diagonal = np.diag(np.diag(hessian))
    for doubt in (0.0, 1e-14, 1e-11, 1e-8):
        try:
            factor, lower = cho_factor(hessian + doubt * diagonal, lower=True, check_finite=False)
        except LinAlgError:
            continue
        return factor, lower
    return np.sqrt(diagonal), True
