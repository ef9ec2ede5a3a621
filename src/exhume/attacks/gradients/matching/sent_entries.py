"""Which entries of a release were sent."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.defence import defended, shown
from exhume.protocol.mechanism import Mechanism

_NEVER = 1e-6
"""If all entries of a unit are dropped by chance this rarely, the unit was inactive."""


def sent(mechanism: Mechanism, arrays: Mapping[str, FloatArray]) -> dict[str, Array | None]:
    """Return a mask of the sent entries per parameter, or None if all were sent.

    A known defence explains the zeros. If no known defence sends only some entries, the pattern of
    the zeros decides (``withheld``): the release may have been pruned after all.
    """
    chances = [d.sending_chance for d in shown(mechanism)]
    sparse = [chance for chance in chances if chance is not None]
    if sparse:
        rate = 1.0 - math.prod(sparse)
        return {name: _sent(values, rate) for name, values in arrays.items()}
    if defended(mechanism):
        return dict.fromkeys(arrays)
    hidden = {name: withheld(values) for name, values in arrays.items()}
    # Zeros in a vector may be inactive units, unless a matrix shows a defence.
    if not any(hidden[n] is not None for n, a in arrays.items() if a.ndim > 1):
        return dict.fromkeys(arrays)
    return {n: None if where is None else ~where for n, where in hidden.items()}


def _sent(values: FloatArray, rate: float) -> Array | None:
    """Return where entries were sent; ``rate`` is the chance that one is dropped whatever it is.

    Rows that chance alone can't have emptied count as sent.
    """
    there: Array = values != 0.0
    if there.all():
        return None
    if values.ndim > 1:
        rows = there.reshape(len(there), -1)
        if rate ** rows.shape[1] < _NEVER:
            idle = ~rows.any(axis=1)
            there = np.where(idle.reshape(-1, *([1] * (values.ndim - 1))), True, there)
    return there


def withheld(gradient: FloatArray) -> Array | None:
    """Return a mask of the zeros that a defence caused, or None if it caused none.

    An inactive unit leaves whole rows or columns of zeros. Other zeros, if they are more than one
    in a hundred, come from a defence.
    """
    zero = gradient == 0.0
    if not zero.any() or zero.all():
        return None
    flat = zero.reshape(len(zero), -1) if zero.ndim > 1 else zero[:, None]
    own = zero.reshape(*zero.shape[:2], -1).all(axis=2) if zero.ndim > 1 else zero[:, None]
    idle = own.all(axis=1)[:, None] | own.all(axis=0)[None, :]
    if zero.ndim == 1:
        idle = np.zeros_like(flat)
    elif zero.ndim > 2:
        idle = np.repeat(idle, flat.shape[1] // idle.shape[1], axis=1)
    unexplained = flat & ~idle
    return zero if unexplained.mean() > 0.01 else None
