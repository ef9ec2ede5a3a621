"""The noise that a desired ceiling requires."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from exhume.bounds.base import Ceiling
from exhume.bounds.checks import require_probability, require_steps
from exhume.bounds.event import ceiling, dp_sgd
from exhume.protocol.errors import InputError

_LEAST, _MOST = 1e-2, 1e6


@dataclass(frozen=True)
class SufficientNoise:
    """A noise multiplier, and its computed ceiling, which is at most the desired one."""

    noise_multiplier: float
    ceiling: Ceiling


def noise_multiplier_for(
    gamma: float, kappa: float, *, sample_rate: float, steps: int, precision: float = 1e-4
) -> SufficientNoise:
    """The smallest noise multiplier of DP-SGD whose ceiling at ``kappa`` is at most ``gamma``.

    It is found by bisection to a relative ``precision``, and certified: the result is the upper end
    of the last bracket. Its own ceiling (in the answer) was computed and is at most ``gamma``.

    >>> found = noise_multiplier_for(0.38914, 0.1, sample_rate=1.0, steps=1)
    >>> round(found.noise_multiplier, 3), found.ceiling.gamma <= 0.38914
    (1.0, True)
    """
    require_probability("gamma", gamma)
    if not gamma > require_probability("kappa", kappa):
        raise InputError(
            f"gamma = {gamma:g} can't be reached: a blind guess already succeeds with "
            f"probability kappa = {kappa:g}, so ask for a gamma above that"
        )
    require_probability("sample_rate", sample_rate)
    require_steps("steps", steps, at_least=1)
    if not 0.0 < precision < 1.0:
        raise InputError(f"precision must be strictly between 0 and 1, got {precision:g}")

    def at(noise_multiplier: float) -> SufficientNoise:
        found = ceiling(dp_sgd(noise_multiplier, sample_rate, steps), kappa)
        if found is None:
            raise InputError(f"no bound holds at a noise multiplier of {noise_multiplier:g}")
        return SufficientNoise(noise_multiplier, found)

    too_little, enough = _bracket(at, gamma)
    while enough.noise_multiplier > (1.0 + precision) * too_little:
        middle = at((too_little * enough.noise_multiplier) ** 0.5)
        if middle.ceiling.gamma <= gamma:
            enough = middle
        else:
            too_little = middle.noise_multiplier
    return enough


def _bracket(at: Callable[[float], SufficientNoise], gamma: float) -> tuple[float, SufficientNoise]:
    """A noise multiplier that is too small and one that suffices; the same if all suffice."""
    enough = at(1.0)
    if enough.ceiling.gamma > gamma:
        while enough.ceiling.gamma > gamma:
            too_little = enough.noise_multiplier
            if 4.0 * too_little > _MOST:
                raise InputError(
                    f"a noise multiplier of {too_little:g} leaves gamma above {gamma:g}"
                )
            enough = at(4.0 * too_little)
        return too_little, enough
    while enough.noise_multiplier > _LEAST:
        less = at(0.25 * enough.noise_multiplier)
        if less.ceiling.gamma > gamma:
            return less.noise_multiplier, enough
        enough = less
    return enough.noise_multiplier, enough
