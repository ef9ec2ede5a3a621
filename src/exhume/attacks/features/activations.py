"""Activations in NumPy: values and slopes, as the fits need them over and over."""

from __future__ import annotations

import numpy as np

from exhume.arrays import FloatArray
from exhume.models.base import Activation

HOMOGENEOUS = frozenset({Activation.RELU, Activation.LEAKY_RELU})
"""σ(cz) = c·σ(z) for c > 0: without a bias, a gradient does not tell a feature's norm."""

ODD = frozenset({Activation.TANH})
"""σ(−z) = −σ(z): a gradient does not tell z from −z."""

KINKS = {
    Activation.RELU: (0.0,),
    Activation.LEAKY_RELU: (0.0,),
    Activation.ELU: (0.0,),
    Activation.SHIFTED_RELU: (-1.0,),
    Activation.RELU_PLUS_TANH: (0.0,),
}
"""Where an activation has a corner: a quadrature must not step over it."""

_LEAK = 0.01


def value_and_slope(activation: Activation, z: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return σ(z) and σ′(z), each in the shape of ``z``; at a corner the slope from the left.

    >>> value, slope = value_and_slope(Activation.RELU, np.array([-1.0, 2.0]))
    >>> value.tolist(), slope.tolist()
    ([0.0, 2.0], [0.0, 1.0])
    """
    match activation:
        case Activation.RELU:
            return np.maximum(z, 0.0), (z > 0).astype(z.dtype)
        case Activation.LEAKY_RELU:
            slope = np.where(z > 0, 1.0, _LEAK)
            return z * slope, slope
        case Activation.SHIFTED_RELU:
            return value_and_slope(Activation.RELU, z + 1.0)
        case Activation.SHIFTED_TANH:
            return value_and_slope(Activation.TANH, z + 1.0)
        case Activation.RELU_PLUS_TANH:
            relu, step = value_and_slope(Activation.RELU, z)
            tanh, slope = value_and_slope(Activation.TANH, z)
            return relu + tanh, step + slope
        case Activation.TANH:
            tanh = np.tanh(z)
            return tanh, 1.0 - tanh * tanh
        case _:
            return _smooth(activation, z)


def _smooth(activation: Activation, z: FloatArray) -> tuple[FloatArray, FloatArray]:
    from scipy.special import expit, ndtr

    if activation is Activation.ELU:
        below = np.exp(np.minimum(z, 0.0))
        return np.where(z > 0, z, below - 1.0), np.where(z > 0, 1.0, below)
    if activation is Activation.GELU:
        share = ndtr(z)
        return z * share, share + z * np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    share = expit(z)
    if activation is Activation.SIGMOID:
        return share, share * (1.0 - share)
    if activation is Activation.SOFTPLUS:
        return np.logaddexp(0.0, z), share
    return z * share, share * (1.0 + z * (1.0 - share))
