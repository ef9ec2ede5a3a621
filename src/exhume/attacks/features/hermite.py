"""Hermite coefficients of an activation: which moments of a gradient hold the features."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from exhume.attacks.features.activations import KINKS, value_and_slope
from exhume.errors import InputError
from exhume.models.base import Activation

ORDERS = 5
_ZERO = 1e-9
"""Below this part of the largest coefficient, one counts as 0: quadrature reaches 1e-14."""


@dataclass(frozen=True)
class Route:
    """Which Hermite moments to use: k₂ for the span, k₃ to tell the features apart.

    ``span_order`` k₂ and ``tensor_order`` k₃ are the first orders from 2 and from 3 on whose
    coefficient is not 0 (Liu et al. 2024, Assumption B.1). ``slope`` is E[σ′], ``curvature`` E[σ″].
    """

    span_order: int
    tensor_order: int
    slope: float
    curvature: float


@cache
def coefficients(activation: Activation) -> tuple[float, ...]:
    """Return E[σ(z) Heₖ(z)] = E[σ⁽ᵏ⁾(z)] for k = 0 … 4 and z ~ N(0, 1) (Stein's lemma).

    Gauss–Legendre on panels of width ¼ over [−12, 12], cut at the activation's corners.

    >>> [abs(round(c, 6)) for c in coefficients(Activation.RELU)]  # 1/√2π, ½, 1/√2π, 0, −1/√2π
    [0.398942, 0.5, 0.398942, 0.0, 0.398942]
    """
    edges = np.unique([*np.arange(-12.0, 12.01, 0.25), *KINKS.get(activation, ())])
    nodes, weights = np.polynomial.legendre.leggauss(16)
    half, middle = np.diff(edges)[:, None] / 2, (edges[1:] + edges[:-1])[:, None] / 2
    z = (middle + half * nodes).ravel()
    density = (half * weights).ravel() * np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    weighted = density * value_and_slope(activation, z)[0]
    each = np.eye(ORDERS)
    return tuple(float(weighted @ np.polynomial.hermite_e.hermeval(z, row)) for row in each)


def route(activation: Activation) -> Route:
    """Choose the moments for an activation; InputError where none up to order 4 will do.

    >>> chosen = route(Activation.RELU)
    >>> chosen.span_order, chosen.tensor_order
    (2, 4)
    """
    found = coefficients(activation)
    threshold = _ZERO * max(abs(c) for c in found)
    alive = [k for k, c in enumerate(found) if abs(c) > threshold]
    span = min((k for k in alive if k >= 2), default=ORDERS)
    tensor = min((k for k in alive if k >= 3), default=ORDERS)
    if span > 3 or tensor > 4:
        raise InputError(
            f"the Hermite coefficients of {activation.value} vanish at orders 2 and 3, or 3 and 4: "
            "the tensor method needs k₂ ≤ 3 and k₃ ≤ 4"
        )
    return Route(span, tensor, found[1], found[2])
