"""What shows of defences in a release: entries that were sent, bounds on the others, noise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.attacks.matching.stack import SPARSE, defended, shown
from exhume.defences import (
    Blurring,
    Clipping,
    Defence,
    GradientDropout,
    Pruning,
    Quantised,
    Rounds,
    Sign,
    TopK,
)
from exhume.mechanism import Mechanism
from exhume.training.gradient import Aggregate, LocalSteps

_NEVER = 1e-6
"""A unit whose entries were all dropped by chance this seldom is one that never fired."""


def sent(mechanism: Mechanism, arrays: Mapping[str, FloatArray]) -> dict[str, Array | None]:
    """Return where (True) entries of each parameter were sent, None where all of them were.

    A known defence says what zeros mean. Where none is known that would send some entries only,
    zeros are judged by how they lie (``withheld``): somebody may have pruned after all.
    """
    sparse = [d for d in shown(mechanism) if isinstance(d, SPARSE)]
    if sparse:
        return {name: _sent(values, sparse) for name, values in arrays.items()}
    if defended(mechanism):
        return dict.fromkeys(arrays)
    hidden = {name: withheld(values) for name, values in arrays.items()}
    # A vector's zeros may be idle units; they are a defence's only where a matrix shows one.
    if not any(hidden[n] is not None for n, a in arrays.items() if a.ndim > 1):
        return dict.fromkeys(arrays)
    return {n: None if where is None else ~where for n, where in hidden.items()}


def _sent(values: FloatArray, sparse: Sequence[Defence]) -> Array | None:
    """Return where entries were sent; rows that chance alone can't have emptied count as sent."""
    there: Array = values != 0.0
    if there.all():
        return None
    if all(isinstance(d, GradientDropout) for d in sparse) and values.ndim > 1:
        rate = 1.0 - math.prod(1.0 - d.rate for d in sparse if isinstance(d, GradientDropout))
        rows = there.reshape(len(there), -1)
        if rate ** rows.shape[1] < _NEVER:
            idle = ~rows.any(axis=1)
            there = np.where(idle.reshape(-1, *([1] * (values.ndim - 1))), True, there)
    return there


def withheld(gradient: FloatArray) -> Array | None:
    """Return where (True) a gradient's zeros are a defence's doing, None where they are not.

    A unit that never fires leaves whole rows or columns of zeros; zeros elsewhere, more than one
    in a hundred, were put there.
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


def limits(mechanism: Mechanism, arrays: Mapping[str, FloatArray]) -> dict[str, float | None]:
    """Return what entries that were not sent are known not to exceed, None where nothing is.

    Pruning keeps the largest: what it held back is no larger than the smallest that it sent.
    """
    none: dict[str, float | None] = dict.fromkeys(arrays)
    if not isinstance(mechanism, Pruning | TopK) or any(deviations(mechanism, arrays, 1).values()):
        return none
    smallest = {n: float(np.abs(a[a != 0.0]).min(initial=math.inf)) for n, a in arrays.items()}
    if isinstance(mechanism, TopK) or mechanism.scope == "global":
        return dict.fromkeys(arrays, min(smallest.values()))
    return dict(smallest)


def deviations(
    mechanism: Mechanism, arrays: Mapping[str, FloatArray], records: int
) -> dict[str, float]:
    """Return the deviation of known noise on the entries of each parameter that were sent.

    Rounding counts as noise, and so does a grid. What random holes and drawn shares add does not.
    """
    match mechanism:
        case LocalSteps():
            # To first order the noise of every step adds up; momentum repeats it.
            one = deviations(mechanism.client, arrays, _step_size(mechanism, records))
            steps = sum(1 for _ in mechanism.steps(records, np.random.default_rng(0)))
            factor = mechanism.optimiser.learning_rate / (1.0 - mechanism.optimiser.momentum)
            return {n: factor * math.sqrt(steps) * s for n, s in one.items()}
        case Aggregate(client, clients):
            one = deviations(client, arrays, max(1, records // clients))
            return {n: s / math.sqrt(clients) for n, s in one.items()}
        case Defence():
            return _through(mechanism, arrays, records)
    return dict.fromkeys(arrays, 0.0)


def _through(defence: Defence, arrays: Mapping[str, FloatArray], records: int) -> dict[str, float]:
    inner = deviations(defence.inner, arrays, records)
    match defence:
        case Blurring():
            own = defence.deviation(records)
            return {n: math.hypot(s, own) for n, s in inner.items()}
        case Quantised(bits=bits, stochastic=stochastic):
            # The largest entry lies on the grid's end.
            steps = {n: 2.0 * np.abs(a).max(initial=0.0) / (2**bits - 1) for n, a in arrays.items()}
            part = 1.0 / math.sqrt(6.0 if stochastic else 12.0)
            return {n: math.hypot(s, float(part * steps[n])) for n, s in inner.items()}
        case Rounds(rounds=rounds):
            return {n: s / math.sqrt(rounds) for n, s in inner.items()}
        case GradientDropout(rate=rate):
            return {n: s / (1.0 - rate) for n, s in inner.items()}
        case Clipping(norm=norm):
            # The noise was scaled down with the rest: it can't be longer than what was sent.
            entries = sum(a.size for a in arrays.values())
            return {n: min(s, norm / math.sqrt(entries)) for n, s in inner.items()}
        case Sign():
            return dict.fromkeys(inner, 0.0)
    return inner


def _step_size(local: LocalSteps, records: int) -> int:
    return records if local.batches is None else min(local.batches.size, records)
