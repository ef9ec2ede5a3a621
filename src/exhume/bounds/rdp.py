"""Ceilings from Rényi differential privacy, tighter than Theorem 2.

The success of a reconstruction is one bit computed from the release, and no processing raises a
Rényi divergence. So D_α(Bernoulli(γ) ‖ Bernoulli(κ)) ≤ ε. The same holds with the two swapped,
because RDP holds for a pair of data sets in either order. Each gives a ceiling on γ; the smaller
one is used.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exhume.bounds.checks import require_probability
from exhume.protocol.arrays import FloatArray
from exhume.protocol.errors import InputError

if TYPE_CHECKING:
    import dp_accounting
    from dp_accounting.privacy_accountant import NeighboringRelation

_HALVINGS = 100
_LONGEST = 300_000
_ROUNDS = 6
_ORDERS = 1.0 + np.geomspace(0.02, 4000.0, 60)


def forward(order: ArrayLike, epsilon: ArrayLike, kappa: float) -> FloatArray:
    """The γ of (1-γ)^α(1-κ)^(1-α) + γ^α κ^(1-α) = e^((α-1)ε): with the target against without.

    ``order`` > 1 and ``epsilon`` ≥ 0 broadcast; rounded up by bisection. Never above Theorem 2,
    which omits the first summand.

    >>> orders = np.linspace(1.5, 4.0, 500)
    >>> round(float(forward(orders, 0.5 * orders, 0.1).min()), 5)
    0.48373
    """
    order, epsilon, kappa = _checked(order, epsilon, kappa)
    if kappa in (0.0, 1.0):
        return np.full(order.shape, kappa)
    odds, complement = math.log(kappa), math.log1p(-kappa)

    def exceeds(log_gamma: FloatArray) -> NDArray[np.bool_]:
        with np.errstate(divide="ignore"):
            log_failure = np.log(-np.expm1(log_gamma))
        hit = order * log_gamma + (1.0 - order) * odds
        miss = order * log_failure + (1.0 - order) * complement
        return np.logaddexp(hit, miss) > (order - 1.0) * epsilon

    _, above = _bisect(exceeds, np.full(order.shape, odds), np.zeros(order.shape))
    return np.where(epsilon >= -odds, 1.0, np.exp(above))


def backward(order: ArrayLike, epsilon: ArrayLike, kappa: float) -> FloatArray:
    """The γ of (1-κ)^α(1-γ)^(1-α) + κ^α γ^(1-α) = e^((α-1)ε): the divergence in reverse.

    It is better than ``forward`` if κ or ε is large, and always below 1.

    >>> round(float(backward(2.0, 1.0, 0.9)), 5) < 1.0
    True
    """
    order, epsilon, kappa = _checked(order, epsilon, kappa)
    if kappa in (0.0, 1.0):
        # An event that never happens without the target may happen with it. This direction of the
        # divergence allows D_α(Bernoulli(0) ‖ Bernoulli(γ)) = α/(1-α) log(1-γ).
        ceiling = -np.expm1(-epsilon * (order - 1.0) / order) if kappa == 0.0 else 1.0
        return np.broadcast_to(np.asarray(ceiling, dtype=np.float64), order.shape).copy()
    odds, complement = math.log(kappa), math.log1p(-kappa)

    def within(log_failure: FloatArray) -> NDArray[np.bool_]:
        hit = order * odds + (1.0 - order) * np.log(-np.expm1(log_failure))
        miss = order * complement + (1.0 - order) * log_failure
        return np.logaddexp(hit, miss) <= (order - 1.0) * epsilon

    lowest = order / (order - 1.0) * complement - epsilon - 1.0
    below, _ = _bisect(within, lowest, np.full(order.shape, complement))
    return np.asarray(-np.expm1(below), dtype=np.float64)


def tight(order: ArrayLike, epsilon: ArrayLike, kappa: float) -> FloatArray:
    """The ceiling that (order, epsilon)-RDP gives, both directions used; at most Theorem 2's.

    >>> bool(tight(2.0, 1.0, 0.01) < (0.01 * np.e) ** 0.5)
    True
    """
    return np.minimum(forward(order, epsilon, kappa), backward(order, epsilon, kappa))


@dataclass(frozen=True)
class RenyiCurve:
    """The Rényi guarantee of a mechanism, as a function from orders (n,) to epsilons (n,).

    It is a function and not a table, so that the best order can lie between grid points.
    """

    epsilons_at: Callable[[FloatArray], FloatArray]

    def best(self, rule: Callable[[FloatArray, FloatArray], FloatArray]) -> tuple[float, float]:
        """The smallest ceiling of ``rule(orders, epsilons)`` over all orders, and its order."""
        orders = _ORDERS
        for _ in range(_ROUNDS):
            epsilons = self.epsilons_at(orders)
            usable = np.isfinite(epsilons)
            if not usable.any():
                return 1.0, math.inf
            orders = orders[usable]
            gammas = rule(orders, epsilons[usable])
            best = int(np.argmin(gammas))
            found = float(gammas[best]), float(orders[best])
            around = orders[max(0, best - 1)], orders[min(len(orders) - 1, best + 1)]
            # The best order so far stays on the grid, so refinement can only lower the ceiling.
            orders = np.append(np.linspace(around[0], around[1], 12), orders[best])
        return found

    def theorem_2(self, kappa: float) -> float:
        """Balle et al. 2022, Theorem 2, at the best order."""
        if require_probability("kappa", kappa) == 0.0:
            return 0.0
        return self.best(
            lambda a, e: np.exp(np.minimum(0.0, (a - 1.0) / a * (math.log(kappa) + e)))
        )[0]

    def tight(self, kappa: float) -> tuple[float, float]:
        """The tighter conversion (see ``tight``) and the order at which it is best."""
        require_probability("kappa", kappa)
        # Each direction has one best order; both together may have two.
        there = self.best(lambda a, e: forward(a, e, kappa))
        back = self.best(lambda a, e: backward(a, e, kappa))
        return min(there, back)


def curve_of_event(event: dp_accounting.DpEvent, relation: NeighboringRelation) -> RenyiCurve:
    """The Rényi curve of ``event``, which must be one that dp-accounting's accountant supports."""
    known: dict[float, float] = {}

    def epsilons_at(orders: FloatArray) -> FloatArray:
        from dp_accounting.rdp import RdpAccountant

        unknown = [float(order) for order in orders if float(order) not in known]
        if unknown:
            # If the series of an order does not converge, it gives infinity and a warning.
            with _quiet("absl"), np.errstate(all="ignore"):
                epsilons = RdpAccountant(unknown, relation).compose(event).rdp
            known.update(zip(unknown, map(float, epsilons), strict=True))
        return np.array([known[float(order)] for order in orders])

    return RenyiCurve(epsilons_at)


def zcdp_curve(rho: float) -> RenyiCurve:
    """The Rényi curve of rho-zCDP: epsilon = order × rho."""
    return RenyiCurve(lambda orders: rho * orders)


def sum_of_curves(curves: list[RenyiCurve]) -> RenyiCurve:
    """The Rényi curve of mechanisms run on the same data: epsilons add up per order."""

    def epsilons_at(orders: FloatArray) -> FloatArray:
        each = [curve.epsilons_at(orders) for curve in curves]
        return np.asarray(np.sum(each, axis=0), dtype=np.float64)

    return RenyiCurve(epsilons_at)


def subsampled_gaussian_curve(
    noise_multiplier: float, sample_rate: float, steps: int
) -> RenyiCurve:
    """The Rényi curve of ``steps`` Poisson-subsampled Gaussians, by quadrature.

    The divergence of the mechanism with the target from the one without, the larger of both
    directions (Mironov, Talwar and Zhang 2019). It does not use dp-accounting: for fractional
    orders, that series is far off at large sampling rates. Infinite if the quadrature would take
    too long.
    """

    def epsilons_at(orders: FloatArray) -> FloatArray:
        each = [_log_moment(float(order), noise_multiplier, sample_rate) for order in orders]
        return np.asarray(steps * np.array(each) / (orders - 1.0), dtype=np.float64)

    return RenyiCurve(epsilons_at)


def _log_moment(order: float, sigma: float, q: float) -> float:
    """Log E_Q (P/Q)^order, by the trapezoidal rule, rounded up.

    The integrand lies between N(0, σ²) and N(order, σ²) and is analytic up to iπσ² off the axis.
    With this step, the rule's error is e^-39 of the integral.
    """
    step = min(sigma / 8.0, 0.5 * sigma**2)
    length = (order + 24.0 * sigma) / step
    if length > _LONGEST:
        return math.inf
    x = -12.0 * sigma + step * np.arange(math.ceil(length) + 1)
    exponent = (2.0 * x - 1.0) / (2.0 * sigma**2)
    small = np.log1p(q * np.expm1(np.clip(exponent, -1.0, 1.0)))
    large = np.logaddexp(math.log1p(-q), math.log(q) + exponent)
    loss = np.where(np.abs(exponent) > 1.0, large, small)
    # The same rule for the density alone (integral 1) is subtracted: near order 1 the difference is
    # tiny, and the rounding of both is the same.
    weights = np.exp(-0.5 * (x / sigma) ** 2)
    log_integrand = order * loss - 0.5 * (x / sigma) ** 2
    peak = float(log_integrand.max())
    total = peak + math.log(float(np.exp(log_integrand - peak).sum()))
    return (total - math.log(float(weights.sum()))) * (1.0 + 1e-9) + 1e-13


@contextlib.contextmanager
def _quiet(name: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _checked(
    order: ArrayLike, epsilon: ArrayLike, kappa: float
) -> tuple[FloatArray, FloatArray, float]:
    orders, epsilons = np.broadcast_arrays(
        np.asarray(order, dtype=np.float64), np.asarray(epsilon, dtype=np.float64)
    )
    if not ((orders > 1.0) & np.isfinite(orders)).all():
        raise InputError("every Rényi order must be above 1 and finite")
    if not ((epsilons >= 0.0) & np.isfinite(epsilons)).all():
        raise InputError("every Rényi epsilon must be a finite number of at least 0")
    return orders, epsilons, require_probability("kappa", kappa)


def _bisect(
    is_above: Callable[[FloatArray], NDArray[np.bool_]], low: FloatArray, high: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Narrow [low, high] around the point where ``is_above`` becomes true; it stays inside."""
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        above = is_above(middle)
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return low, high
