"""Ceilings if only a privacy guarantee is known, not the mechanism."""

from __future__ import annotations

import math

from exhume.bounds import rdp
from exhume.bounds.base import Binds, Ceiling, Method
from exhume.bounds.checks import require_not_negative, require_order, require_probability
from exhume.bounds.closed_form import approximate_dp, corollary_4, finite_domain, theorem_2


def from_approximate_dp(epsilon: float, delta: float, kappa: float) -> Ceiling:
    """The tight ceiling for (epsilon, delta)-DP, whether a record is removed or replaced.

    >>> round(from_approximate_dp(1.0, 0.0, 0.1).gamma, 5)
    0.27183
    """
    gamma = approximate_dp(epsilon, delta, kappa)
    detail = "tight for (epsilon, delta)-DP: some mechanism with that guarantee reaches it"
    return Ceiling(gamma, kappa, Method.APPROXIMATE_DP, detail=detail)


def from_finite_domain(epsilon: float, size: int, kappa: float) -> Ceiling:
    """The ceiling on naming one of ``size`` records exactly; epsilon is for *replacing* a record.

    >>> round(from_finite_domain(1.0, 4, 0.25).gamma, 5)
    0.47537
    """
    gamma = finite_domain(epsilon, kappa, size)
    plain = approximate_dp(epsilon, 0.0, kappa)
    detail = f"exact reconstruction among {size} records; epsilon is for replacing one of them"
    method = Method.FINITE_DOMAIN if gamma <= plain else Method.APPROXIMATE_DP
    return Ceiling(min(gamma, plain), kappa, method, Binds.EXACT_ATTACKS, detail)


def from_zcdp(rho: float, kappa: float) -> Ceiling:
    """The ceiling for rho-zCDP: the tighter Rényi conversion at the best order, or Corollary 4.

    >>> round(from_zcdp(0.5, 0.1).gamma, 5)
    0.48373
    """
    plain = corollary_4(rho, kappa)
    gamma, order = rdp.zcdp_curve(rho).tight(kappa)
    if gamma <= plain:
        detail = f"Rényi DP of order {order:.4g}, the divergence taken both ways"
        return Ceiling(max(gamma, kappa), kappa, Method.RDP, detail=detail)
    return Ceiling(plain, kappa, Method.COROLLARY_4, detail="Balle et al. 2022, Corollary 4")


def from_rdp(order: float, epsilon: float, kappa: float) -> Ceiling:
    """The ceiling for (order, epsilon)-RDP; an infinite order means epsilon-DP.

    >>> round(from_rdp(2.0, 1.0, 0.1).gamma, 5)
    0.49325
    """
    order, epsilon = require_order(order), require_not_negative("epsilon", epsilon)
    require_probability("kappa", kappa)
    if math.isinf(order):
        return from_approximate_dp(epsilon, 0.0, kappa)
    gamma, plain = float(rdp.tight(order, epsilon, kappa)), theorem_2(order, epsilon, kappa)
    if gamma <= plain:
        detail = "no processing of the release raises a Rényi divergence, taken both ways"
        return Ceiling(max(gamma, kappa), kappa, Method.RDP, detail=detail)
    return Ceiling(plain, kappa, Method.THEOREM_2, detail="Balle et al. 2022, Theorem 2")
