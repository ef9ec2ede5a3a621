"""Lower bounds on ε from attacks: what a private training can't claim to be better than.

They hold with the stated confidence for every training that is (ε, δ)-private, whatever the attack.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from exhume.protocol.arrays import FloatArray
from exhume.protocol.errors import InputError
from exhume.stats.interval import LEVEL, require_level
from exhume.stats.proportions import clopper_pearson_low

_LARGEST = 60.0
"""An ε beyond which limits are not computed."""


def epsilon_from_trials(
    successes: int, trials: int, *, kappa: float, delta: float, confidence: float = LEVEL
) -> float:
    """Return the lower limit of ε from independent trainings, each attacked once.

    A blind guess succeeds with probability ``kappa``. Under (ε, δ)-differential privacy an attack's
    success γ is at most κe^ε + δ, and its failure 1 − γ at least (1 − κ − δ)e^−ε: γ's lower limit
    (Clopper–Pearson, one-sided) limits ε from below both ways.

    >>> round(epsilon_from_trials(90, 100, kappa=0.1, delta=0.0), 3)
    2.124
    """
    _require_share("kappa", kappa)
    _require_delta(delta)
    low = clopper_pearson_low(successes, trials, confidence=confidence)
    ways = [0.0]
    if low > delta:
        ways.append(math.log((low - delta) / kappa))
    if low < 1.0 and 1.0 - kappa > delta:
        ways.append(math.log((1.0 - kappa - delta) / (1.0 - low)))
    return max(ways)


def epsilon_from_one_run(
    right: int, guesses: int, canaries: int, *, delta: float, confidence: float = LEVEL
) -> float:
    """Return the lower limit of ε from one training (Steinke, Nasr, Jagielski 2023, Theorem 5.2).

    Each of ``canaries`` records was trained on or not by the toss of a fair coin; the auditor
    guessed ``guesses`` of the tosses and was ``right`` that often.

    >>> round(epsilon_from_one_run(100, 100, 100, delta=0.0), 3)
    3.493
    """
    _require_guesses(right, guesses, canaries)
    _require_delta(delta)
    require_level(confidence)

    def refuted(epsilon: float) -> bool:
        return one_run_p_value(epsilon, right, guesses, canaries, delta) <= 1.0 - confidence

    return _last_refuted(refuted)


def one_run_p_value(epsilon: float, right: int, guesses: int, canaries: int, delta: float) -> float:
    """Return how likely so many right guesses are at most, if the training is (ε, δ)-private."""
    from scipy.stats import binom

    share = 1.0 / (1.0 + math.exp(-epsilon))
    tail = float(binom.sf(right - 1, guesses, share))
    if delta == 0.0 or right == 0:
        return min(1.0, tail)
    back = np.arange(1, right + 1)
    slopes = (binom.sf(right - back - 1, guesses, share) - tail) / back
    return float(min(1.0, tail + 2.0 * canaries * delta * slopes.max()))


def gaussian_shift_from_one_run(
    right: int, guesses: int, canaries: int, *, confidence: float = LEVEL
) -> float:
    """Return the lower limit of μ, if the training is a Gaussian mechanism of shift μ.

    Mahloujifar, Melis, Chaudhuri 2025: tighter than ε alone, since it uses the whole trade-off
    between errors. Full-batch DP-SGD of T steps with noise multiplier σ has μ = √T/σ.
    """
    from scipy.special import ndtr, ndtri

    _require_guesses(right, guesses, canaries)
    require_level(confidence)

    def refuted(shift: float) -> bool:
        def level(power: float) -> float:
            return float(ndtr(ndtri(power) - shift))

        return trade_off_refuted(level, right, guesses, canaries, confidence=confidence)

    return _last_refuted(refuted)


def trade_off_refuted(
    level: Callable[[float], float],
    right: int,
    guesses: int,
    canaries: int,
    *,
    confidence: float = LEVEL,
) -> bool:
    """Whether one run refutes a claimed trade-off (Mahloujifar et al. 2025, Algorithm 3).

    ``level(power)`` is the smallest false-positive rate at which a test of one record can have that
    power, by the claim.
    """
    alpha = 1.0 - confidence
    there, missed = alpha * right / canaries, alpha * (guesses - right) / canaries
    for i in range(right - 1, -1, -1):
        more = max(missed, level(min(1.0, there)))
        there = min(1.0, there + (i / (guesses - i)) * (more - missed))
        missed = more
    return there + missed > guesses / canaries


def epsilon_of_gaussian(shift: float, delta: float) -> float:
    """Return ε at ``delta`` of a Gaussian mechanism of shift μ (Dong, Roth, Su 2022, Corollary 1).

    >>> round(epsilon_of_gaussian(1.0, 1e-5), 3)
    4.377
    """
    from scipy.optimize import brentq
    from scipy.stats import norm

    _require_delta(delta)
    if shift <= 0.0:
        return 0.0

    def profile(epsilon: float) -> float:
        first = norm.cdf(0.5 * shift - epsilon / shift)
        second = norm.logcdf(-0.5 * shift - epsilon / shift)
        return float(first - np.exp(epsilon + second) - delta)

    if profile(0.0) <= 0.0:
        return 0.0
    high = 1.0
    while profile(high) > 0.0:
        high *= 2.0
    return float(brentq(profile, 0.0, high, xtol=1e-10))


def best_guesses(
    scores: FloatArray, included: FloatArray, delta: float, *, confidence: float = LEVEL
) -> tuple[int, int]:
    """Return (right, guesses) with as many guesses from each end as prove the most.

    The k highest scores are guessed in, the k lowest out, for k of a fixed geometric grid. Each k
    is a test of its own, so the confidence is shared between them (Bonferroni): evaluate the
    result at ``chosen_confidence(len(scores))``.
    """
    order, tossed = np.argsort(scores), np.asarray(included, dtype=bool)
    shared = chosen_confidence(len(scores), confidence=confidence)
    found = []
    for k in _grid(len(scores)):
        right = int(tossed[order[-k:]].sum() + (~tossed[order[:k]]).sum())
        limit = epsilon_from_one_run(right, 2 * k, len(scores), delta=delta, confidence=shared)
        found.append((limit, right, 2 * k))
    best = max(found, key=lambda one: (one[0], one[1] / one[2]))
    return best[1], best[2]


def chosen_confidence(canaries: int, *, confidence: float = LEVEL) -> float:
    """Return the confidence that each number of guesses is tested at."""
    return 1.0 - (1.0 - confidence) / len(_grid(canaries))


def _grid(canaries: int) -> list[int]:
    """Return numbers of guesses from each end: a 32nd to half of all canaries, doubling."""
    return sorted({max(1, canaries // parts) for parts in (32, 16, 8, 4, 2)})


def _last_refuted(refuted: Callable[[float], bool]) -> float:
    """Return the largest value that is refuted, by bisection; 0 where none is."""
    if not refuted(0.0):
        return 0.0
    low, high = 0.0, _LARGEST
    while high - low > 1e-6:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def _require_guesses(right: int, guesses: int, canaries: int) -> None:
    if not 0 <= right <= guesses <= canaries or guesses < 1:
        raise InputError(
            "a run needs right ≤ guesses ≤ canaries and a guess at least, "
            f"got {right}, {guesses} and {canaries}"
        )


def _require_share(name: str, value: float) -> None:
    if not 0.0 < value < 1.0:
        raise InputError(f"{name} must be between 0 and 1, got {value}")


def _require_delta(delta: float) -> None:
    if not 0.0 <= delta < 1.0:
        raise InputError(f"delta must be at least 0 and below 1, got {delta}")
