"""Single mechanisms on a grid of privacy losses, by "connecting the dots".

Doroshenko et al. 2022: between two grid points, the divergence is replaced by its chord, which lies
above it. So the grid's distribution dominates the true one for every real ε, and composition
preserves this. Here the chord is found from the interval's own probability with and without the
target (both are kept). Differences of δ would lose ten digits by cancellation.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from exhume.bounds.privacy_loss import PrivacyLoss
from exhume.protocol.arrays import FloatArray
from exhume.protocol.errors import ExhumeError

if TYPE_CHECKING:
    import dp_accounting
    from dp_accounting.privacy_accountant import NeighboringRelation

_REACH = 10.0
"""The grid covers this many standard deviations of the noise: 8e-24 of the mass lies beyond."""


def subsampled_gaussian(
    noise_multiplier: float, sample_rate: float, interval: float
) -> PrivacyLoss:
    """One step of the Poisson-subsampled Gaussian mechanism, with the target against without it.

    The release is projected on the target's clipped gradient (norm 1 in units of the clipping
    norm). It is x ~ N(0, σ²) without the target, and (1-q) N(0, σ²) + q N(1, σ²) with it. The loss
    log(1 - q + q e^((2x-1)/2σ²)) rises with x. ``sample_rate`` q is in (0, 1].
    """
    q, sigma = sample_rate, noise_multiplier
    lowest = math.floor(float(_loss(np.array(-_REACH * sigma), sigma, q)) / interval)
    highest = math.ceil(float(_loss(np.array(1.0 + _REACH * sigma), sigma, q)) / interval)
    grid = np.arange(lowest, highest + 1) * interval
    edges = _noise_at(grid, sigma, q)
    without, without_low, without_high = _masses(edges / sigma)
    shifted, shifted_low, shifted_high = _masses((edges - 1.0) / sigma)
    with_target = (1.0 - q) * without + q * shifted
    probabilities = _connect_dots(grid, interval, with_target, without)
    # Losses below the grid are rounded up to it; above it, the chord ends at an infinite loss.
    probabilities[0] += (1.0 - q) * without_low + q * shifted_low
    beyond = (1.0 - q) * without_high + q * shifted_high
    at_top = min(beyond, without_high * math.exp(min(grid[-1], 700.0)))
    probabilities[-1] += at_top
    return PrivacyLoss(interval, lowest, probabilities, beyond - at_top)


def spreads(noise_multiplier: float, sample_rate: float) -> tuple[float, float]:
    """Standard deviations of one step's loss, without the target and with it."""
    around = np.linspace(-8.0, 8.0, 2001)
    x = np.sort(np.concatenate([around, 1.0 / noise_multiplier + around]))
    losses = _loss(noise_multiplier * x, noise_multiplier, sample_rate)
    without = np.exp(-0.5 * x * x) * np.gradient(x)
    present = np.exp(-0.5 * (x - 1.0 / noise_multiplier) ** 2) * np.gradient(x)
    with_target = (1.0 - sample_rate) * without + sample_rate * present
    return _deviation(losses, without), _deviation(losses, with_target)


def reach(noise_multiplier: float, sample_rate: float) -> float:
    """The range of losses that the grid of one step must cover."""
    ends = np.array([-_REACH * noise_multiplier, 1.0 + _REACH * noise_multiplier])
    return float(np.ptp(_loss(ends, noise_multiplier, sample_rate)))


def from_accountant(
    event: dp_accounting.DpEvent, relation: NeighboringRelation, interval: float
) -> PrivacyLoss:
    """One run of ``event`` as dp-accounting's PLD accountant represents it.

    The accountant keeps two distributions: "remove" (P with the target, Q without) and "add" (the
    reverse). Its public results are the larger of both, which would be too high here.
    """
    from dp_accounting.pld import PLDAccountant

    accountant: Any = PLDAccountant(relation, interval).compose(event)
    try:
        remove = accountant._pld._pmf_remove.to_dense_pmf()
        lowest, infinite = int(remove._lower_loss), float(remove._infinity_mass)
        probabilities = np.maximum(np.asarray(remove._probs, dtype=np.float64), 0.0)
    except AttributeError as error:
        raise ExhumeError(
            f"this version of dp-accounting keeps its distributions elsewhere ({error})"
        ) from error
    return PrivacyLoss(interval, lowest, probabilities, infinite)


def _loss(x: FloatArray, sigma: float, q: float) -> FloatArray:
    """log(1 - q + q e^((2x-1)/2σ²)), without overflow and without cancellation near 0."""
    exponent = (2.0 * x - 1.0) / (2.0 * sigma**2)
    if q == 1.0:
        return np.asarray(exponent, dtype=np.float64)
    small = np.log1p(q * np.expm1(np.clip(exponent, -1.0, 1.0)))
    large = np.logaddexp(math.log1p(-q), math.log(q) + exponent)
    return np.asarray(np.where(np.abs(exponent) > 1.0, large, small), dtype=np.float64)


def _noise_at(losses: FloatArray, sigma: float, q: float) -> FloatArray:
    """The x at which the loss has the given values; -inf below the smallest possible loss."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # e^loss - (1 - q), over q: each of the two forms loses no digits on its side.
        large = losses + np.log1p(-(1.0 - q) * np.exp(-losses)) - math.log(q)
        small = np.log1p(np.expm1(losses) / q)
        exponent = np.where(np.abs(losses) > 1.0, large, small)
    exponent = np.where(np.isnan(exponent), -np.inf, exponent)
    return sigma**2 * exponent + 0.5


def _deviation(values: FloatArray, weights: FloatArray) -> float:
    weights = weights / weights.sum()
    return math.sqrt(float(weights @ (values - weights @ values) ** 2))


def _masses(edges: FloatArray) -> tuple[FloatArray, float, float]:
    """Standard normal mass between neighbouring edges, below the first and above the last."""
    from scipy.special import ndtr

    below, above = ndtr(edges), ndtr(-edges)
    between = np.where(edges[:-1] > 0.0, above[:-1] - above[1:], below[1:] - below[:-1])
    return between, float(below[0]), float(above[-1])


def _connect_dots(
    grid: FloatArray, interval: float, with_target: FloatArray, without: FloatArray
) -> FloatArray:
    """Move each interval's mass to its two ends; this keeps both P's and Q's mass."""
    with np.errstate(over="ignore", invalid="ignore"):
        up = (with_target - without * np.exp(grid[:-1])) / -math.expm1(-interval)
    # If e^loss overflows, Q's mass is below every float: the interval moves to its upper end.
    up = np.clip(np.where(np.isfinite(up), up, with_target), 0.0, with_target)
    probabilities = np.zeros(len(grid))
    probabilities[:-1] += with_target - up
    probabilities[1:] += up
    return probabilities
