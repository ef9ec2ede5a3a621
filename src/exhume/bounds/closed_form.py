"""Ceilings in closed form, from privacy parameters alone.

Throughout, ``kappa`` is the success of the best blind guess. The value returned is a probability
``gamma`` that no attack exceeds. Let E be the event that the reconstruction succeeds. Without the
target in the data, E has probability at most kappa for any attack. So any limit on the difference
of the two output distributions on one event gives a ceiling.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from exhume.bounds.checks import (
    require_count,
    require_not_negative,
    require_order,
    require_positive,
    require_probabilities,
    require_probability,
    require_steps,
)
from exhume.protocol.arrays import FloatArray
from exhume.protocol.errors import InputError


def theorem_2(order: float, epsilon: float, kappa: float) -> float:
    """(order, epsilon)-RDP: gamma = (kappa e^epsilon)^((order-1)/order), at most 1.

    Balle et al. 2022, Theorem 2. ``rdp.tight`` is never above it.

    >>> round(theorem_2(2.0, 1.0, 0.01), 5)
    0.16487
    """
    order, epsilon = require_order(order), require_not_negative("epsilon", epsilon)
    if require_probability("kappa", kappa) == 0.0:
        return 0.0
    exponent = 1.0 if math.isinf(order) else (order - 1.0) / order
    return math.exp(min(0.0, exponent * (math.log(kappa) + epsilon)))


def corollary_3(epsilon: float, kappa: float) -> float:
    """epsilon-DP: gamma = kappa e^epsilon, at most 1 (Balle et al. 2022, Corollary 3).

    >>> round(corollary_3(1.0, 0.1), 5)
    0.27183
    """
    return theorem_2(math.inf, epsilon, kappa)


def corollary_4(rho: float, kappa: float) -> float:
    """rho-zCDP: gamma = exp(-(sqrt(log(1/kappa)) - sqrt(rho))^2), and 1 once rho ≥ log(1/kappa).

    Balle et al. 2022, Corollary 4: Theorem 2 at the best order.

    >>> round(corollary_4(0.5, 0.1), 5)
    0.5186
    """
    rho = require_not_negative("rho", rho)
    if require_probability("kappa", kappa) == 0.0:
        return 0.0
    surprise = -math.log(kappa)
    if rho >= surprise:
        return 1.0
    return math.exp(-((math.sqrt(surprise) - math.sqrt(rho)) ** 2))


def approximate_dp(epsilon: float, delta: float, kappa: float) -> float:
    """(epsilon, delta)-DP: the tight min(1, e^eps kappa + delta, 1 - e^-eps(1 - delta - kappa)).

    The first term is the definition applied to success. The second is the definition applied to
    failure, with the two data sets swapped. Together they are one minus the trade-off function of
    (epsilon, delta)-DP at kappa. So no smaller value holds for every such mechanism and prior.

    >>> round(approximate_dp(1.0, 1e-5, 0.1), 5), round(approximate_dp(4.0, 1e-5, 0.5), 5)
    (0.27184, 0.99084)
    """
    epsilon = require_not_negative("epsilon", epsilon)
    delta, kappa = require_probability("delta", delta), require_probability("kappa", kappa)
    by_success = math.inf if epsilon > 700.0 else math.exp(epsilon) * kappa + delta
    by_failure = 1.0 - math.exp(-epsilon) * max(0.0, 1.0 - delta - kappa)
    return min(1.0, by_success, by_failure)


def finite_domain(epsilon: float, kappa: float, size: int) -> float:
    """epsilon-DP, exact reconstruction among ``size`` records: size·kappa·e^eps/(size + e^eps - 1).

    This is the bound from quantitative information flow quoted by Balle et al. 2022, §VII-F, with
    e^epsilon where the paper prints epsilon. Here epsilon must hold for *replacing* the record by
    any other. With an epsilon that only holds for adding or removing it, the formula is false: use
    ``corollary_3``.

    >>> round(finite_domain(1.0, 0.25, 4), 5)
    0.47537
    """
    epsilon, size = (
        require_not_negative("epsilon", epsilon),
        require_count("size", size, at_least=1),
    )
    if require_probability("kappa", kappa) * size < 1.0 - 1e-12:
        raise InputError(
            f"some record of {size} has probability at least 1/{size}, so kappa = {kappa:g} "
            "is too small for that domain"
        )
    # Divided through by e^epsilon, which may overflow.
    return min(1.0, size * kappa / (1.0 + (size - 1) * math.exp(-epsilon)))


def theorem_5(epsilon: float, gamma: float) -> float:
    """From robustness back to (epsilon, delta)-DP: delta = max(0, (e^eps + 1) gamma - e^eps).

    Balle et al. 2022, Theorem 5. ``gamma`` must bound *exact* reconstruction for every prior on two
    records of which one has probability 1/(e^epsilon + 1). This epsilon is for replacing a record.

    >>> round(theorem_5(0.0, 0.6), 5), theorem_5(1.0, 0.7)
    (0.2, 0.0)
    """
    epsilon, gamma = require_not_negative("epsilon", epsilon), require_probability("gamma", gamma)
    if gamma == 1.0:
        return 1.0
    # e^eps (gamma - 1) + gamma, written so that a large epsilon gives -inf instead of inf - inf.
    return max(0.0, gamma - (1.0 - gamma) * math.exp(min(epsilon, 700.0)))


def gaussian(noise_multiplier: float, steps: int, kappa: ArrayLike) -> FloatArray:
    """Exact ceiling of the Gaussian mechanism, every record in every step: Φ(Φ⁻¹(κ) + √steps/σ).

    ``noise_multiplier`` is σ over the clipping norm. This is the Neyman–Pearson test between a
    centred Gaussian and one shifted by the clipping norm: no bound for this mechanism is smaller.

    >>> gaussian(1.0, 1, [0.1, 0.01, 0.001]).round(5)
    array([0.38914, 0.09236, 0.0183 ])
    """
    noise_multiplier = require_positive("noise_multiplier", noise_multiplier)
    steps = require_steps("steps", steps)
    return gaussian_shift(math.sqrt(steps) / noise_multiplier, kappa)


def gaussian_shift(shift: float, kappa: ArrayLike) -> FloatArray:
    """Φ(Φ⁻¹(κ) + shift): the exact ceiling for two unit Gaussians at the distance ``shift``."""
    from scipy.special import ndtr, ndtri

    kappa = require_probabilities("kappa", kappa)
    # Without a shift, the result must be exactly kappa, without rounding.
    if require_not_negative("shift", shift) == 0.0:
        return kappa.copy()
    return np.asarray(np.clip(ndtr(ndtri(kappa) + shift), kappa, 1.0), dtype=np.float64)
