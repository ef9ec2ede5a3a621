"""κ, the success of the best blind guess: sup over guesses of the prior's mass within η of it.

Balle et al. 2022, §VII-B. Every ceiling depends on the prior through κ alone, and rises with κ. An
upper bound on κ is therefore safe; a lower bound is not. If a value underflows, the smallest normal
float replaces it.
"""

from __future__ import annotations

import math
import sys

import numpy as np
from numpy.typing import ArrayLike

from exhume.bounds.checks import (
    require_count,
    require_not_negative,
    require_positive,
    require_probabilities,
)
from exhume.protocol.arrays import FloatArray
from exhume.protocol.errors import InputError


def kappa_uniform_ball(*, dimension: int, radius: float, eta: float) -> float:
    """κ of the uniform prior on a Euclidean ball: (η/radius)^dimension, exactly.

    Balle et al. 2022, Proposition 6 (with radius 1). Guessing the centre is best.

    >>> kappa_uniform_ball(dimension=3, radius=2.0, eta=1.0)
    0.125
    """
    dimension = require_count("dimension", dimension, at_least=1)
    radius, eta = require_positive("radius", radius), require_not_negative("eta", eta)
    if eta == 0.0:
        return 0.0
    return max(min(1.0, eta / radius) ** dimension, sys.float_info.min)


def kappa_gaussian(*, dimension: int, sigma: float, eta: float) -> float:
    """κ of the prior N(w, σ²I) under the Euclidean distance: P(χ²_d ≤ η²/σ²), exactly.

    Balle et al. 2022, Proposition 7, with the tail itself instead of Chernoff's bound on it.

    >>> f"{kappa_gaussian(dimension=10, sigma=2 / 10**0.5, eta=1.0):.3e}"
    '9.124e-03'
    """
    from scipy.special import gammainc

    dimension = require_count("dimension", dimension, at_least=1)
    sigma, eta = require_positive("sigma", sigma), require_not_negative("eta", eta)
    if eta == 0.0:
        return 0.0
    value = float(gammainc(0.5 * dimension, 0.5 * (eta / sigma) ** 2))
    # If the tail itself underflows, Chernoff's bound, in logarithms, replaces it.
    return value or kappa_gaussian_chernoff(dimension=dimension, sigma=sigma, eta=eta)


def kappa_gaussian_chernoff(*, dimension: int, sigma: float, eta: float) -> float:
    """Chernoff's bound on κ: exp(d/2 · (1 - r + log r)) with r = η²/(σ²d), and 1 if r ≥ 1.

    Balle et al. 2022, proof of Proposition 7. Never below ``kappa_gaussian``.

    >>> f"{kappa_gaussian_chernoff(dimension=10, sigma=2 / 10**0.5, eta=1.0):.3e}"
    '4.152e-02'
    """
    dimension = require_count("dimension", dimension, at_least=1)
    sigma, eta = require_positive("sigma", sigma), require_not_negative("eta", eta)
    if eta == 0.0:
        return 0.0
    log_ratio = 2.0 * (math.log(eta) - math.log(sigma)) - math.log(dimension)
    if log_ratio >= 0.0:
        return 1.0
    log_kappa = 0.5 * dimension * (1.0 - math.exp(log_ratio) + log_ratio)
    return max(math.exp(log_kappa), sys.float_info.min)


def kappa_finite(probabilities: ArrayLike) -> float:
    """κ of a prior on finitely many records for exact reconstruction: the largest probability.

    ``probabilities`` (n,) sum to 1.

    >>> kappa_finite([0.5, 0.3, 0.2])
    0.5
    """
    return float(_distribution(probabilities).max())


def kappa_finite_losses(probabilities: ArrayLike, losses: ArrayLike, *, eta: float) -> float:
    """κ of a prior on finitely many records for reconstruction within η: the best row's mass.

    It is exact. ``losses`` (guesses, n) holds the error of every allowed guess on every record, and
    ``probabilities`` (n,) sum to 1. For guesses outside the list see ``kappa_of_pool``.

    >>> kappa_finite_losses([0.5, 0.3, 0.2], [[0, 2, 2], [2, 1, 1]], eta=1.0)
    0.5
    """
    weights, table = _distribution(probabilities), np.asarray(losses, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] != len(weights) or len(table) == 0:
        raise InputError(f"losses must have shape (guesses, {len(weights)}), got {table.shape}")
    if not (table >= 0.0).all():
        raise InputError("losses must be numbers of at least 0")
    near = table <= require_not_negative("eta", eta)
    return min(1.0, float((near @ weights).max()))


def kappa_uniform(size: int) -> float:
    """κ of the uniform prior on ``size`` records, for exact reconstruction.

    >>> kappa_uniform(4)
    0.25
    """
    return 1.0 / require_count("size", size, at_least=1)


def kappa_product(kappas: ArrayLike, *, at_least: int | None = None) -> float:
    """κ of a record with independent attributes, from each attribute's own κ (m,).

    Success means that at least ``at_least`` of the m attributes are right, by default all of them.
    For all, κ is the product; otherwise it is the upper tail of a sum of independent coins. It is
    exact: attributes are guessed one by one, and each guess is best at its own κ.

    >>> kappa_product([0.5, 0.5, 0.5]), kappa_product([0.5, 0.5, 0.5], at_least=2)
    (0.125, 0.5)
    """
    each = np.atleast_1d(require_probabilities("kappas", kappas))
    if each.ndim != 1 or len(each) == 0:
        raise InputError(
            f"kappas must be a list of one number per attribute, got shape {each.shape}"
        )
    needed = len(each) if at_least is None else require_count("at_least", at_least, at_least=0)
    if needed > len(each):
        raise InputError(f"at_least = {needed}, but there are only {len(each)} attributes")
    right = np.zeros(len(each) + 1)
    right[0] = 1.0
    for kappa in each:
        right[1:] = right[1:] * (1.0 - kappa) + right[:-1] * kappa
        right[0] *= 1.0 - kappa
    return min(1.0, float(right[needed:].sum()))


def _distribution(probabilities: ArrayLike) -> FloatArray:
    weights = np.atleast_1d(require_probabilities("probabilities", probabilities))
    if weights.ndim != 1 or not math.isclose(float(weights.sum()), 1.0, abs_tol=1e-9):
        raise InputError(
            f"probabilities must be a list that sums to 1, got shape {weights.shape} "
            f"with sum {float(weights.sum()):g}"
        )
    return weights
