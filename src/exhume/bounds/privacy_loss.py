"""The privacy-loss distribution on a grid: the limit of an optimal test, and so of an attack.

Let P be the release's distribution with the target in the data and Q without it. The privacy loss
is log P/Q, drawn from P. Suppose that a success event has probability at most κ under Q. By Neyman
and Pearson, its probability under P is then at most γ(κ) = min over real ε of δ(ε) + e^ε κ. Here
δ(ε) is the hockey-stick divergence of P from Q (in this direction only: with the target against
without). In units of e^ε, the divergence of a distribution on a grid is piecewise linear, and the
minimum is at a grid point. So γ(κ) is the curve through the points (Q(loss > ε), P(loss > ε)).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from exhume.bounds.checks import require_count, require_probabilities, require_probability
from exhume.protocol.arrays import FloatArray
from exhume.protocol.errors import InputError

TAIL = 1e-18
"""The probability that moves to an infinite loss when a composition's tails are cut off."""
_UNIT_ROUNDOFF = 2.0**-53


@dataclass(frozen=True, eq=False)
class PrivacyLoss:
    """A privacy-loss distribution that dominates the true one: every ceiling from it errs upwards.

    The losses are ``(lowest + i) * interval`` with probability ``probabilities[i]`` under P, and
    infinite with probability ``infinite``. A total above 1 by rounding is harmless.
    """

    interval: float
    lowest: int
    probabilities: FloatArray
    infinite: float

    @cached_property
    def losses(self) -> FloatArray:
        """The grid of losses, ascending, same shape as ``probabilities``."""
        return (self.lowest + np.arange(len(self.probabilities))) * self.interval

    @cached_property
    def _curve(self) -> tuple[FloatArray, FloatArray]:
        """The points (Q(loss > ε), P(loss > ε)), from the highest loss down."""
        with np.errstate(over="ignore"):
            without = np.where(
                self.probabilities > 0.0, self.probabilities * np.exp(-self.losses), 0.0
            )
        below = np.concatenate([[0.0], np.cumsum(without[::-1])])
        above = self.infinite + np.concatenate([[0.0], np.cumsum(self.probabilities[::-1])])
        # Summing n terms of one sign errs by less than n units: both sums yield to the safe side.
        room = 4.0 * _UNIT_ROUNDOFF * (len(self.probabilities) - 1)
        return below * (1.0 - room), np.minimum(above * (1.0 + room), 1.0)

    def gamma(self, kappa: ArrayLike) -> FloatArray:
        """The ceiling γ at each κ in [0, 1]; same shape as ``kappa``. All κ share one curve."""
        kappas = require_probabilities("kappa", kappa)
        below, above = self._curve
        # Beyond the last point, Q has no more mass on the grid: all the rest counts as success.
        gammas = np.interp(kappas, below, above, right=1.0)
        return np.asarray(np.clip(gammas, kappas, 1.0), dtype=np.float64)

    def delta(self, epsilon: float) -> float:
        """The hockey-stick divergence δ(ε) of P from Q, for any real ε (negative ones too)."""
        if math.isnan(epsilon):
            raise InputError("epsilon must be a number, got NaN")
        above = self.losses > epsilon
        excess = -np.expm1(epsilon - self.losses[above])
        return min(1.0, self.infinite + float(excess @ self.probabilities[above]))

    def epsilon(self, delta: float) -> float:
        """The smallest ε ≥ 0 with δ(ε) ≤ ``delta``; infinite if there is none.

        It is for the target against without it only. For Poisson-subsampled Gaussians, the other
        direction is smaller at every ε ≥ 0, so this is the ε of their (ε, δ)-DP.
        """
        delta = require_probability("delta", delta)
        if self.delta(0.0) <= delta:
            return 0.0
        if self.infinite > delta:
            return math.inf
        # The first sufficient grid point; just below it, δ is linear in e^ε.
        first, last = 0, len(self.losses) - 1
        while first < last:
            middle = (first + last) // 2
            enough = self.delta(float(self.losses[middle])) <= delta
            first, last = (first, middle) if enough else (middle + 1, last)
        losses, masses = self.losses[first:], self.probabilities[first:]
        top = float(losses[0])
        without = float(masses @ np.exp(top - losses))
        excess = self.infinite + float(masses.sum()) - delta
        return min(top, max(0.0, top + math.log(excess / without)))

    def compose(self, other: PrivacyLoss) -> PrivacyLoss:
        """The loss of both mechanisms on the same data; the second sees the first's output."""
        from scipy.signal import fftconvolve

        if not math.isclose(self.interval, other.interval, rel_tol=1e-12):
            raise InputError(f"intervals differ: {self.interval:g} and {other.interval:g}")
        convolved = fftconvolve(self.probabilities, other.probabilities)
        noise = _noise(len(convolved), 2, min(_norm(self), _norm(other)))
        together = self.infinite + other.infinite - self.infinite * other.infinite
        return PrivacyLoss(
            self.interval,
            self.lowest + other.lowest,
            np.maximum(convolved, 0.0),
            min(1.0, together + noise),
        )

    def repeat(self, count: int) -> PrivacyLoss:
        """The loss of ``count`` runs, each of which sees the earlier ones; it is 0 for 0 runs."""
        from scipy import fft

        count = require_count("count", count, at_least=0)
        if count == 0:
            return nothing(self.interval)
        if count == 1:
            return self
        first, last = _window(self.probabilities, count)
        length = int(fft.next_fast_len(max(last - first + 1, len(self.probabilities)), real=True))
        spectrum = fft.rfft(self.probabilities, length) ** count
        # Mass outside the window wraps into it. From below, it moves to a higher loss, which errs
        # upwards. From above, it is at most TAIL and counts as an infinite loss.
        wrapped = np.roll(fft.irfft(spectrum, length), -(first % length))[: last - first + 1]
        leaks = -math.expm1(count * math.log1p(-self.infinite)) if self.infinite < 1.0 else 1.0
        noise = _noise(length, count, _norm(self))
        return PrivacyLoss(
            self.interval,
            self.lowest * count + first,
            np.maximum(wrapped, 0.0),
            min(1.0, leaks + TAIL + noise),
        )


def nothing(interval: float) -> PrivacyLoss:
    """The loss of a release that does not depend on the target: 0 for certain.

    >>> float(nothing(1e-4).gamma(0.25))
    0.25
    """
    return PrivacyLoss(interval, 0, np.ones(1), 0.0)


def _norm(loss: PrivacyLoss) -> float:
    return float(np.linalg.norm(loss.probabilities))


def _noise(length: int, count: int, norm: float) -> float:
    """An upper estimate of the part of δ that rounding of the Fourier transforms can hide.

    A transform of length N has an error of about u·log₂N times the norm of its input in every
    coefficient. A power multiplies the error by the exponent. The sum over the grid is at most a
    few times as large, because a composed distribution fills a good part of its window.
    """
    return 4.0 * count * _UNIT_ROUNDOFF * math.log2(max(2, length)) * norm


def _window(probabilities: FloatArray, count: int) -> tuple[int, int]:
    """Indices between which the sum of ``count`` draws stays, up to TAIL either side (Chernoff)."""
    index = np.arange(len(probabilities), dtype=np.float64)
    mass = float(probabilities.sum())
    mean = float(probabilities @ index) / mass
    spread = math.sqrt(max(float(probabilities @ (index - mean) ** 2) / mass, 1e-12))
    first, last = 0, (len(probabilities) - 1) * count
    # Light tails are best cut at a multiple of the sum's spread, heavy ones at one of the range.
    multiples = np.array([1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 14.0, 20.0, 30.0])
    rates = np.concatenate([multiples / (spread * math.sqrt(count)), multiples / len(index)])
    for rate in np.concatenate([rates, -rates]):
        exponents = rate * (index - mean)
        peak = float(exponents.max())
        log_moment = peak + math.log(float(probabilities @ np.exp(exponents - peak)))
        edge = mean * count + (count * log_moment - math.log(TAIL)) / float(rate)
        if rate > 0:
            last = min(last, math.ceil(edge))
        else:
            first = max(first, math.floor(edge))
    return first, max(first, last)
