"""How strong a defence is: the error that the strongest attack leaves under it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exhume.arrays import FloatArray
from exhume.audit.record import Record
from exhume.metrics.confidence import expanded_interval
from exhume.reconstruction import Status


@dataclass(frozen=True)
class Strength:
    """The error under the attack that is strongest on average, with its 95 % interval.

    The strongest attack is the one with the smallest mean error over all targets: the smallest
    error of each target would be picked by looking at the truth. A blind guess counts, since
    everybody can make it (``blind``); where an attack found nothing, the guess stands for it. The
    interval is a bootstrap over batches in which the choice is made anew; None with one batch.
    ``answered`` is false where no attack but a guess really ran: that is no evidence of strength.
    """

    mean: float
    low: float | None
    high: float | None
    attack: str
    blind: bool
    by_attack: dict[str, float]
    """The mean error of every attack that ran, guesses included."""
    answered: bool = True


@dataclass(frozen=True, eq=False)
class Errors:
    """The mean error (attacks, batches) of every attack on every batch of one setting."""

    attacks: tuple[str, ...]
    blind: tuple[bool, ...]
    values: FloatArray
    answered: bool = True


def errors_of(
    facts: Mapping[str, Mapping[str, Any]], records: Sequence[Record], metric: str
) -> dict[str, Errors]:
    """Return each setting's errors on the batches that all settings have in common."""
    found = {}
    for name, fact in facts.items():
        own = _setting_errors([r for r in records if r.trial.setting == name], metric)
        if own is None:
            continue
        size = int(fact.get("batch") or 1)
        whole = own.values.shape[1] // size
        means = own.values[:, : whole * size].reshape(len(own.attacks), whole, size).mean(axis=2)
        if whole:
            found[name] = replace(own, values=means)
    common = min((one.values.shape[1] for one in found.values()), default=0)
    return {name: replace(one, values=one.values[:, :common]) for name, one in found.items()}


def _setting_errors(records: Sequence[Record], metric: str) -> Errors | None:
    """Return errors (attacks, targets); the best guess stands in where an attack found nothing."""
    attacks = {r.trial.attack: r.baseline for r in records}
    rows = {a: _row([r for r in records if r.trial.attack == a], metric) for a in attacks}
    targets = min((len(row) for row in rows.values()), default=0)
    guesses = [rows[a][:targets] for a, blind in attacks.items() if blind]
    guesses = sorted((g for g in guesses if np.isfinite(g).all()), key=np.mean)
    kept: dict[str, FloatArray] = {}
    for attack, row in rows.items():
        filled = row[:targets]
        if not np.isfinite(filled).any():
            continue
        if guesses:
            filled = np.where(np.isfinite(filled), filled, guesses[0])
        if np.isfinite(filled).all():
            kept[attack] = filled
    if not kept or not targets:
        return None
    answered = any(not r.baseline and Status[r.status].ran for r in records)
    blind = tuple(attacks[a] for a in kept)
    return Errors(tuple(kept), blind, np.stack(list(kept.values())), answered)


def _row(records: Sequence[Record], metric: str) -> FloatArray:
    """Return one attack's error on each target from the first on, NaN where it has none."""
    ordered = sorted(records, key=lambda r: r.trial.target)
    found = [_error(r, metric) for i, r in enumerate(ordered) if r.trial.target == i]
    return np.array([math.nan if e is None else e for e in found], dtype=np.float64)


def _error(record: Record, metric: str) -> float | None:
    # Whatever the attack says of it: a candidate that it doubts is a candidate.
    return record.distance if metric == "rmse" else record.scores.get(metric)


def resampled(errors: Errors, drawn: NDArray[np.int64]) -> FloatArray:
    """Return the strongest attack's mean error (resamples,) on ``drawn`` (resamples, batches)."""
    means: FloatArray = np.stack([row[drawn].mean(axis=1) for row in errors.values])
    strongest: FloatArray = means.min(axis=0)
    return strongest


def strength_of(errors: Errors, draws: FloatArray) -> Strength:
    """Return the strength, its interval taken from what ``resampled`` gave."""
    means, batches = errors.values.mean(axis=1), errors.values.shape[1]
    best = int(means.argmin())
    mean, low, high = float(means[best]), None, None
    if batches > 1:
        low, high = expanded_interval(draws, batches)
        low, high = min(low, mean), max(high, mean)
    by_attack = dict(zip(errors.attacks, map(float, means), strict=True))
    attack, blind = errors.attacks[best], errors.blind[best]
    return Strength(mean, low, high, attack, blind, by_attack, errors.answered)
