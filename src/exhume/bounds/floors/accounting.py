"""Limits on the information about one record in a differentially private release, by DpEvent.

Events count neighbours as Exhume's mechanisms do: a record is present or absent. Two records that
could take the same place are both neighbours of the data without it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from exhume.protocol.errors import InputError

if TYPE_CHECKING:
    import dp_accounting

_LARGEST_EXPONENT = 700.0
"""Above this, e^x overflows; simpler bounds are used."""


@dataclass(frozen=True)
class GaussianSteps:
    """``count`` steps of the Gaussian mechanism, each on a Poisson sample of the data.

    ``noise_multiplier`` is the noise over the norm that one record's contribution is clipped to.
    """

    sample_rate: float
    noise_multiplier: float
    count: int

    def information(self) -> float:
        """The Kullback–Leibler divergence of these steps with the record from those without it."""
        return self.count * _step_information(self.sample_rate, self.noise_multiplier)

    def replacement_divergence(self) -> float:
        """Bound the order-2 Rényi divergence between these steps with one record and another."""
        return self.count * _step_replacement(self.sample_rate, self.noise_multiplier)


def event_information(event: dp_accounting.DpEvent) -> float:
    """Bound, in nats, the mutual information between one record and the release.

    I(x; release) ≤ E KL(release with x ‖ release without), for any prior of x. The adversary may
    know all other records. Exact for the Gaussian mechanism (T/(2σ²), its ρ of zero-concentrated
    privacy) and, numerically, for its Poisson-subsampled form. For other events, their Rényi
    guarantee at order 2 is used, which is larger. Infinite without a guarantee.

    >>> import dp_accounting as dp
    >>> event_information(dp.SelfComposedDpEvent(dp.GaussianDpEvent(2.0), 4))
    0.5
    """
    steps = gaussian_steps(event)
    if steps is None:
        return _renyi(event, [2.0])[0]
    return math.fsum(part.information() for part in steps)


def event_replacement_divergence(event: dp_accounting.DpEvent) -> float:
    """Bound ε₂, the order-2 Rényi divergence between the releases on two possible records.

    Guo et al. 2022 need this: both data sets contain a record. The guarantee for a record that is
    present or absent is not enough, and using it as ε₂ is unsound. For Gaussian steps, this is the
    bound of ``GaussianSteps.replacement_divergence``. For other events it is (4/3) ε₃ + ε₄ of their
    guarantee (Mironov 2017, Proposition 11, weak triangle inequality at p = 3/2), which is 4T/σ²
    for the Gaussian mechanism as well.
    """
    steps = gaussian_steps(event)
    if steps is None:
        third, fourth = _renyi(event, [3.0, 4.0])
        return 4.0 / 3.0 * third + fourth
    return math.fsum(part.replacement_divergence() for part in steps)


def gaussian_steps(event: dp_accounting.DpEvent) -> list[GaussianSteps] | None:
    """Read ``event`` as Gaussian steps, or return None if it contains anything else."""
    import dp_accounting as dp

    if isinstance(event, dp.NoOpDpEvent):
        return []
    if isinstance(event, dp.GaussianDpEvent):
        return [GaussianSteps(1.0, float(event.noise_multiplier), 1)]
    if isinstance(event, dp.PoissonSampledDpEvent):
        multiplier = _joint_noise_multiplier(gaussian_steps(event.event))
        rate = float(event.sampling_probability)
        return None if multiplier is None else [GaussianSteps(rate, multiplier, 1)]
    if isinstance(event, dp.SelfComposedDpEvent):
        return _repeated(gaussian_steps(event.event), int(event.count))
    if isinstance(event, dp.ComposedDpEvent):
        return _joined([gaussian_steps(part) for part in event.events])
    return None


def _joined(parts: list[list[GaussianSteps] | None]) -> list[GaussianSteps] | None:
    steps: list[GaussianSteps] = []
    for part in parts:
        if part is None:
            return None
        steps.extend(part)
    return steps


def _repeated(steps: list[GaussianSteps] | None, count: int) -> list[GaussianSteps] | None:
    if steps is None:
        return None
    return [GaussianSteps(s.sample_rate, s.noise_multiplier, s.count * count) for s in steps]


def _joint_noise_multiplier(steps: list[GaussianSteps] | None) -> float | None:
    """Several Gaussian answers on one sample equal one answer with a smaller noise."""
    if not steps or any(part.sample_rate != 1.0 for part in steps):
        return None
    if any(part.noise_multiplier == 0.0 for part in steps):
        return 0.0
    return float(sum(part.count * part.noise_multiplier**-2 for part in steps) ** -0.5)


def _step_information(rate: float, noise: float) -> float:
    if rate == 0.0:
        return 0.0
    if noise == 0.0:
        return math.inf
    whole = 0.5 / noise**2
    if rate == 1.0 or whole > _LARGEST_EXPONENT / 3.0:
        return rate * whole
    # The trapezoidal rule is almost exact for such bell-shaped integrands.
    x, width = np.linspace(-12.0 * noise, 1.0 + 12.0 * noise, 8001, retstep=True)
    density = np.exp(-0.5 * (x / noise) ** 2) / (noise * math.sqrt(2.0 * math.pi))
    excess = rate * np.expm1((x - 0.5) / noise**2)
    small = np.abs(excess) < 1e-4
    terms = np.where(
        small,
        excess**2 * (0.5 - excess / 6.0),
        (1.0 + excess) * np.log1p(excess) - excess,
    )
    # The result is never above the limit from the convexity of the divergence.
    return min(float((density * terms).sum() * width), rate * whole)


def _step_replacement(rate: float, noise: float) -> float:
    """log(1 + χ²) of (1-q)Q + qG′ from (1-q)Q + qG, for Gaussians with means at most 1 from Q's.

    χ² = q² ∫(G′-G)²/((1-q)Q + qG). As 1/x is convex, 1/((1-q)Q + qG) ≤ (1-q)/Q + q/G; it is also
    at most 1/((1-q)Q). The two integrals that remain are largest for opposite means.
    """
    if rate == 0.0:
        return 0.0
    if noise == 0.0:
        return math.inf
    strength = noise**-2
    if rate == 1.0 or 4.0 * strength > _LARGEST_EXPONENT:
        return 4.0 * strength
    from_blind = 4.0 * math.sinh(strength)
    mixed = (1.0 - rate) * from_blind + rate * math.expm1(4.0 * strength)
    return math.log1p(rate**2 * min(mixed, from_blind / (1.0 - rate)))


def _renyi(event: dp_accounting.DpEvent, orders: list[float]) -> list[float]:
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(orders)
    if not accountant.supports(event):
        raise InputError(
            f"no Rényi guarantee is known for this event, with one record there or not: {event}"
        )
    return [float(epsilon) for epsilon in accountant.compose(event).rdp]
