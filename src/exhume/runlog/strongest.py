"""The strongest attack on a setting, by one rule for each of two measures: success and error.

It has the best mean of the measure over the setting's targets. Success is a share of the trials in
which an attack ran, and blind guesses do not compete. The error is the success metric's distance;
guesses compete, and where an attack left nothing the best guess stands for it: whoever attacks can
guess. Ties go to the smaller mean error, then to the order of the plan.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from exhume.protocol.arrays import FloatArray
from exhume.runlog.outcome import Outcome

SUCCESS_RULE = (
    "The strongest attack has the highest success rate, of equals the smallest mean error over all "
    "targets."
)
"""The first rule in words, for whoever shows its choice."""
ERROR_RULE = (
    "The strongest attack is the one with the smallest mean error over all targets; where an "
    "attack found nothing, the blind guess stands for it."
)
"""The second rule in words."""


class Rated(Protocol):
    """What one attack did on one setting, such as a row of the summary."""

    @property
    def baseline(self) -> bool:
        """Whether it is a blind guess."""

    @property
    def succeeded(self) -> float | None:
        """Its success rate over trials in which it ran; None where nothing was judged."""

    @property
    def error(self) -> float | None:
        """Its mean error over all targets; None where nothing can be said of one."""


R = TypeVar("R", bound=Rated)


def by_success(rated: Sequence[R]) -> list[R]:
    """Return the attacks whose success was judged, the strongest first; no blind guesses."""
    attacks = [one for one in rated if not one.baseline and one.succeeded is not None]
    return sorted(attacks, key=lambda one: (-(one.succeeded or 0.0), _last(one.error)))


def by_error(rated: Sequence[R]) -> list[R]:
    """Return attacks and blind guesses with an error, the strongest first."""
    return sorted((one for one in rated if one.error is not None), key=lambda one: _last(one.error))


def _last(error: float | None) -> float:
    return math.inf if error is None else error


@dataclass(frozen=True, eq=False)
class Errors:
    """The errors (attacks, targets) of one setting's attacks, in the order of the plan.

    ``blind`` marks guesses; ``answered`` is false where only guesses ran.
    """

    attacks: tuple[str, ...]
    blind: tuple[bool, ...]
    values: FloatArray
    answered: bool = True

    @property
    def means(self) -> dict[str, float]:
        """The mean error of every attack."""
        return dict(zip(self.attacks, map(float, self.values.mean(axis=1)), strict=True))


def errors_on(outcomes: Sequence[Outcome], metric: str = "rmse") -> Errors | None:
    """Return the errors on the targets of one setting that every attack was tried on."""
    blind = {r.trial.attack: r.baseline for r in outcomes}
    rows = {a: _row([r for r in outcomes if r.trial.attack == a], metric) for a in blind}
    targets = min((len(row) for row in rows.values()), default=0)
    kept = filled(
        {attack: row[:targets] for attack, row in rows.items()}, {a for a in blind if blind[a]}
    )
    if not kept or not targets:
        return None
    answered = any(not r.baseline and r.ran for r in outcomes)
    return Errors(
        tuple(kept), tuple(blind[a] for a in kept), np.stack(list(kept.values())), answered
    )


def filled(errors: Mapping[str, FloatArray], guesses: Collection[str]) -> dict[str, FloatArray]:
    """Return errors by attack, those of the best guess where they are NaN.

    Attacks that left nothing on any target are dropped, as are those that nothing can fill.
    """
    known = [errors[name] for name in errors if name in guesses and np.isfinite(errors[name]).all()]
    best = min(known, key=np.mean, default=np.array(math.nan))
    found = {
        attack: np.where(np.isfinite(own), own, best)
        for attack, own in errors.items()
        if np.isfinite(own).any()
    }
    return {attack: own for attack, own in found.items() if np.isfinite(own).all()}


def _row(outcomes: Sequence[Outcome], metric: str) -> FloatArray:
    """Return one attack's error on each target in order, NaN if it has none."""
    ordered = sorted(outcomes, key=lambda r: r.trial.target)
    found = [_error(r, metric) for i, r in enumerate(ordered) if r.trial.target == i]
    return np.array([math.nan if e is None else e for e in found], dtype=np.float64)


def _error(outcome: Outcome, metric: str) -> float | None:
    # A candidate counts even if the attack itself doubts it.
    return outcome.distance if metric == "rmse" else outcome.scores.get(metric)
