"""The floors of Guo et al. 2022: from Rényi divergence, and from Fisher information leakage.

Both bind unbiased attacks only. The first is a Hammersley–Chapman–Robbins bound. An attack that is
right on average at z and at z′ has variance at least (z′ᵢ - zᵢ)² / χ²(release at z′ ‖ release at z)
in coordinate i, and χ² = e^D₂ - 1 ≤ e^ε₂ - 1. Within a range, some z′ is half the range away from
z.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from exhume.bounds.floors.accounting import event_replacement_divergence
from exhume.bounds.floors.base import (
    ErrorUnit,
    Floor,
    FloorBinds,
    checked_jacobian,
    checked_noise,
    require_amount,
)
from exhume.protocol.arrays import FloatArray
from exhume.protocol.errors import InputError

if TYPE_CHECKING:
    import dp_accounting


def renyi_floor(epsilon_two: float, *, ranges: ArrayLike = 1.0) -> Floor:
    """Floor on the mean squared error per coordinate of unbiased attacks, at every record.

    Σᵢ rangeᵢ²/4 / (d (e^ε₂ - 1)) (Guo et al. 2022). ``epsilon_two`` is the Rényi divergence of
    order 2 between the releases on any two possible records. For the guarantee of a record that is
    present or absent, see ``event_replacement_divergence``. ``ranges`` is the width of the
    coordinates' value ranges, one number (1 for [0, 1]) or one per coordinate (d,). Records may
    take any value within. An attack with a prior can go below: the constant answer .5 on [0, 1] has
    an error of at most .25, for any ε₂.

    >>> round(renyi_floor(math.log(2.0)).value, 6)
    0.25
    """
    require_amount("epsilon_two", epsilon_two)
    widths = _checked_ranges(ranges)
    information = math.expm1(epsilon_two) if epsilon_two < 700 else math.inf
    square = float((widths**2).mean()) / 4.0
    return Floor(
        value=square / information if information > 0 else math.inf,
        unit=ErrorUnit.MSE,
        method=f"Rényi divergence of order 2, {epsilon_two:.4g}",
        binds=FloorBinds.UNBIASED,
        note="" if information > 0 else "the release says nothing: no unbiased attack exists",
    )


def renyi_floor_of_event(event: dp_accounting.DpEvent, *, ranges: ArrayLike = 1.0) -> Floor:
    """``renyi_floor`` of a mechanism with this event (one record present or absent).

    >>> import dp_accounting as dp
    >>> round(renyi_floor_of_event(dp.GaussianDpEvent(4.0)).value, 4)
    0.8802
    """
    return renyi_floor(event_replacement_divergence(event), ranges=ranges)


def fisher_leakage(jacobian: ArrayLike, noise_std: ArrayLike) -> float:
    """Fisher information leakage per coordinate, η² = tr(JᵀJ/σ²)/d (Guo et al. 2022).

    ``jacobian`` (outputs, inputs) is the release's at the record, ``noise_std`` one number or one
    per output.

    >>> fisher_leakage([[2.0, 0.0], [0.0, 1.0]], 1.0)
    2.5
    """
    array = checked_jacobian(jacobian)
    noise = checked_noise(noise_std, len(array))
    return float(((array / noise[:, None]) ** 2).sum() / array.shape[1])


def fisher_floor(leakage: float) -> Floor:
    """Floor 1/η² on the mean squared error per coordinate of unbiased attacks.

    ``leakage`` is η² (at least 0, may be infinite). It is never above Cramér–Rao, because it only
    uses the mean of the information (Liu et al. 2024, Lemma D.2: tr(F⁻¹) ≥ d²/tr(F)).

    >>> fisher_floor(2.5).value
    0.4
    """
    require_amount("leakage", leakage)
    return Floor(
        value=1.0 / leakage if leakage > 0 else math.inf,
        unit=ErrorUnit.MSE,
        method=f"Fisher information leakage {leakage:.4g}",
        binds=FloorBinds.UNBIASED,
    )


def _checked_ranges(ranges: ArrayLike) -> FloatArray:
    widths = np.atleast_1d(np.asarray(ranges, dtype=np.float64))
    if widths.ndim > 1 or not len(widths) or not (np.isfinite(widths) & (widths > 0)).all():
        raise InputError(f"ranges must be finite widths above 0, one or one each: {widths}")
    return widths
