"""The ceiling of any mechanism that has a DpEvent; audits call this."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from exhume.bounds import accounting
from exhume.bounds.base import Ceiling, Method
from exhume.bounds.checks import require_not_negative, require_probability, require_steps
from exhume.bounds.closed_form import gaussian_shift
from exhume.bounds.flatten import Flat, flatten
from exhume.bounds.privacy_loss import PrivacyLoss
from exhume.bounds.rdp import RenyiCurve
from exhume.protocol.arrays import FloatArray
from exhume.protocol.errors import InputError

if TYPE_CHECKING:
    import dp_accounting

_ROUNDING_SHOWS = 1e-6
"""Below this value, the rounding of Fourier transforms may matter, and RDP may be better."""


def ceiling(event: dp_accounting.DpEvent, kappa: float) -> Ceiling | None:
    """The best ceiling known for ``event`` at ``kappa``; None if no bound holds.

    It is exact, but rounded upwards, for Gaussian, Laplace, Poisson-subsampled and mixed mechanisms
    and their compositions (Balle et al. 2022, Definition 2, by Neyman–Pearson: P is the mechanism
    with the target, Q without). For events without a privacy-loss distribution it comes from Rényi
    DP. None means that the event has no finite guarantee. Raises InputError for an event that no
    accountant supports.

    >>> import dp_accounting as dp
    >>> found = ceiling(dp.GaussianDpEvent(1.0), 0.1)
    >>> round(found.gamma, 5), found.method.value
    (0.38914, 'gaussian')
    >>> ceiling(dp.NonPrivateDpEvent(), 0.1) is None
    True
    """
    kappa, flat = require_probability("kappa", kappa), flatten(event)
    if not flat.private:
        return None
    if not flat.terms:
        return _gaussian_ceiling(flat.shift, kappa)
    by_loss = _from_loss(flat, kappa)
    if by_loss is None:
        return _from_rdp(flat, kappa)
    if by_loss.gamma >= _ROUNDING_SHOWS:
        return by_loss
    with contextlib.suppress(InputError):
        by_rdp = _from_rdp(flat, kappa)
        return by_rdp if by_rdp is not None and by_rdp.gamma < by_loss.gamma else by_loss
    return by_loss


def gammas(event: dp_accounting.DpEvent, kappas: ArrayLike) -> FloatArray | None:
    """The ceiling at each of ``kappas``, same shape, with shared work; None if no bound holds.

    >>> import dp_accounting as dp
    >>> gammas(dp.GaussianDpEvent(1.0), [0.1, 0.01]).round(5)
    array([0.38914, 0.09236])
    """
    kappas = np.asarray(kappas, dtype=np.float64)
    each = [ceiling(event, float(kappa)) for kappa in kappas.flat]
    found = [one.gamma for one in each if one is not None]
    return np.array(found).reshape(kappas.shape) if len(found) == len(each) else None


def privacy_loss(event: dp_accounting.DpEvent) -> PrivacyLoss | None:
    """The privacy-loss distribution of ``event``: it gives ceilings at any number of kappas.

    None if the event has no finite guarantee, or if only Rényi DP is known for it. The last few are
    kept in memory: another call for the same mechanism costs nothing.

    >>> event = dp_sgd(noise_multiplier=1.0, sample_rate=0.1, steps=100)
    >>> privacy_loss(event).gamma([0.1, 0.01]).round(4)
    array([0.4692, 0.1461])
    """
    flat = flatten(event)
    return accounting.loss_of(flat) if flat.private else None


def rdp_curve(event: dp_accounting.DpEvent) -> RenyiCurve | None:
    """The Rényi curve of ``event``; None without a finite guarantee, InputError if unsupported."""
    flat = flatten(event)
    return accounting.rdp_of(flat) if flat.private else None


def dp_sgd(noise_multiplier: float, sample_rate: float, steps: int) -> dp_accounting.DpEvent:
    """The event of DP-SGD: ``steps`` Poisson-subsampled Gaussian mechanisms.

    ``noise_multiplier`` is the noise's standard deviation over the clipping norm, ``sample_rate``
    the probability in [0, 1] that a record takes part in a step.
    """
    import dp_accounting

    require_not_negative("noise_multiplier", noise_multiplier)
    require_probability("sample_rate", sample_rate)
    step = dp_accounting.PoissonSampledDpEvent(
        sample_rate, dp_accounting.GaussianDpEvent(noise_multiplier)
    )
    return dp_accounting.SelfComposedDpEvent(step, require_steps("steps", steps))


def _gaussian_ceiling(shift: float, kappa: float) -> Ceiling:
    gamma = float(gaussian_shift(shift, kappa))
    if shift == 0.0:
        return Ceiling(
            gamma, kappa, Method.NO_LEAK, detail="the release says nothing of the target"
        )
    detail = f"exact: two unit Gaussians {shift:.4g} apart"
    return Ceiling(gamma, kappa, Method.GAUSSIAN, detail=detail)


def _from_loss(flat: Flat, kappa: float) -> Ceiling | None:
    loss = accounting.loss_of(flat)
    if loss is None:
        return None
    detail = f"exact, rounded upwards on a grid of {loss.interval:.2g} in the privacy loss"
    return Ceiling(float(loss.gamma(kappa)), kappa, Method.PLD, detail=detail)


def _from_rdp(flat: Flat, kappa: float) -> Ceiling | None:
    gamma, order = accounting.rdp_of(flat).tight(kappa)
    if order == math.inf:
        return None
    detail = f"Rényi DP of order {order:.4g}, the divergence taken both ways"
    return Ceiling(max(gamma, kappa), kappa, Method.RDP, detail=detail)
