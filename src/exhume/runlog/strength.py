"""The strength of a defence: the error of the strongest attack under it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from exhume.protocol.arrays import FloatArray
from exhume.runlog.outcome import Outcome
from exhume.runlog.setting import Setting
from exhume.runlog.strongest import Errors, errors_on
from exhume.stats.bootstrap import expanded_interval


@dataclass(frozen=True)
class Strength:
    """The error under the attack that is strongest on average, with its 95 % interval.

    It is chosen by the rule of ``runlog.strongest``: the smallest error of each target would be
    picked by looking at the truth. ``blind`` says that it is a guess. The interval is a bootstrap
    over batches in which the choice is made anew; None with one batch.
    ``answered`` is false where only guesses really ran: that is no evidence of strength.
    """

    mean: float
    low: float | None
    high: float | None
    attack: str
    blind: bool
    by_attack: dict[str, float]
    """The mean error of every attack that ran, guesses included."""
    answered: bool = True


def errors_of(
    settings: Sequence[Setting], records: Sequence[Outcome], metric: str
) -> dict[str, Errors]:
    """Return each setting's errors on the batches that all settings have in common."""
    found = {}
    for setting in settings:
        own = errors_on([r for r in records if r.trial.setting == setting.name], metric)
        if own is None:
            continue
        size = setting.batch or 1
        whole = own.values.shape[1] // size
        means = own.values[:, : whole * size].reshape(len(own.attacks), whole, size).mean(axis=2)
        if whole:
            found[setting.name] = replace(own, values=means)
    common = min((one.values.shape[1] for one in found.values()), default=0)
    return {name: replace(one, values=one.values[:, :common]) for name, one in found.items()}


def resampled(errors: Errors, drawn: NDArray[np.int64]) -> FloatArray:
    """Return the strongest attack's mean error (resamples,) on ``drawn`` (resamples, batches)."""
    means: FloatArray = np.stack([row[drawn].mean(axis=1) for row in errors.values])
    strongest: FloatArray = means.min(axis=0)
    return strongest


def strength_of(errors: Errors, draws: FloatArray) -> Strength:
    """Return the strength, with the interval of the values ``resampled``."""
    means, batches = errors.means, errors.values.shape[1]
    attack = min(errors.attacks, key=lambda name: means[name])
    mean, low, high = means[attack], None, None
    if batches > 1:
        found = expanded_interval(mean, draws, batches)
        low, high = min(found.low, mean), max(found.high, mean)
    blind = errors.blind[errors.attacks.index(attack)]
    return Strength(mean, low, high, attack, blind, means, errors.answered)
