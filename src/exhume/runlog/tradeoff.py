"""Defences at equal utility: the error of the strongest attack against the loss of utility.

After Liu et al. 2024, section 5 and Figure 3. Everything here is computed from a run's records and
facts, so a folder can be judged again without running anything.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from exhume.protocol.arrays import FloatArray
from exhume.protocol.seeds import stream
from exhume.runlog.outcome import Outcome
from exhume.runlog.setting import ErrorFloor, Setting, VictimTraining
from exhume.runlog.strength import Strength, errors_of, resampled, strength_of
from exhume.runlog.strongest import Errors
from exhume.stats.means import mean_interval, student_quantile

RESAMPLES = 4000
SURE = 0.95
"""The probability that a winner must have."""
_WORTH_NAMING = 0.05
_METRICS = ("rmse", "lpips")
"""Errors: larger values mean less leakage."""


class Measure(Enum):
    """The measure of utility; its loss is positive if training becomes worse."""

    ACCURACY = "accuracy"
    """Share of test records classified correctly: its loss is the drop."""
    TRAINING_LOSS = "training loss"
    """Mean loss of the training records at the end, as Liu et al.: its loss is the increase."""

    @property
    def levels(self) -> tuple[float, ...]:
        """The losses of utility at which a winner is determined."""
        return (0.01, 0.05, 0.1) if self is Measure.ACCURACY else (0.05, 0.2, 0.5)


@dataclass(frozen=True)
class UtilityLoss:
    """The loss of utility by a defence: seed by seed, compared with the same seed without it.

    The interval is Student's at 95 % over the seeds; None with one seed. ``mean`` is infinite if a
    training diverged. ``value`` is the utility itself: an accuracy, or a final training loss.
    """

    mean: float
    low: float | None
    high: float | None
    value: float
    diverged: int = 0


@dataclass(frozen=True)
class Point:
    """One defence of a group, or none ("").

    ``on_front``: no other point protects at least as well at no more loss of utility; None if
    utility was not measured. ``front_probability`` is the share of resamples in which it was.
    ``floor`` is the smallest error that the attacks named in ``floor_binds`` can have on average;
    ``rate`` the rate of Liu et al. 2024, Table 1, over that of no defence: a ratio of errors.
    """

    setting: str
    defence: str
    strength: Strength
    utility: UtilityLoss | None = None
    on_front: bool | None = None
    front_probability: float | None = None
    floor: float | None = None
    floor_binds: str = ""
    rate: float | None = None


@dataclass(frozen=True)
class Contender:
    """A defence ("" is none), and its probability of being the best."""

    defence: str
    probability: float


@dataclass(frozen=True)
class Winner:
    """The best defence among those that cost at most ``utility_loss``.

    ``told`` if the first of ``contenders`` is the best with a probability of 95 % or more, over
    batches and seeds; otherwise it is undecided between those listed.
    """

    utility_loss: float
    told: bool
    contenders: tuple[Contender, ...]

    @property
    def defence(self) -> str | None:
        """The winner; None if it is undecided."""
        return self.contenders[0].defence if self.told else None


@dataclass(frozen=True)
class Tradeoff:
    """One group of settings that differ in their defence alone, on one pair of axes.

    ``metric`` is the error that strength is measured by, ``measure`` the utility ("" if none was
    measured: then there is no front and no winner). ``blind`` is the smallest mean error of a blind
    guess. Points stand in the order of the settings, the undefended one first.
    """

    group: str
    metric: str
    measure: str
    batches: int
    seeds: int
    blind: float | None
    points: tuple[Point, ...]
    winners: tuple[Winner, ...] = ()

    def describe(self) -> tuple[str, ...]:
        """Return one line per loss of utility with the winner."""
        return tuple(_sentence(self, winner) for winner in self.winners)


def tradeoffs(settings: Sequence[Setting], outcomes: Sequence[Outcome]) -> tuple[Tradeoff, ...]:
    """Return the trade-offs of every group with at least one defence, on every pair of axes."""
    groups: dict[str, list[Setting]] = {}
    for setting in settings:
        if setting.group:
            groups.setdefault(setting.group, []).append(setting)
    found = []
    for group, own in groups.items():
        names = {setting.name for setting in own}
        mine = [r for r in outcomes if r.trial.setting in names]
        for metric in _METRICS:
            errors = errors_of(own, mine, metric)
            if errors and len(errors) > 1:
                found += _on_every_measure(group, metric, own, errors)
    return tuple(found)


def _on_every_measure(
    group: str,
    metric: str,
    settings: Sequence[Setting],
    errors: Mapping[str, Errors],
) -> list[Tradeoff]:
    rng = stream(0, "tradeoff", group, metric)
    batches = next(iter(errors.values())).values.shape[1]
    drawn = rng.integers(batches, size=(RESAMPLES, batches))
    # All settings of a group have the same batches, so they are resampled together.
    strengths = {name: resampled(one, drawn) for name, one in errors.items()}
    points = [
        _point(setting, errors[setting.name], strengths[setting.name], metric)
        for setting in settings
        if setting.name in errors
    ]
    blind = [float(v.mean()) for e in errors.values() for v in e.values[np.array(e.blind)]]
    plain = Tradeoff(group, metric, "", batches, 0, min(blind, default=None), tuple(points))
    runs = {one.name: one.trainings for one in settings if one.name in errors}
    base = next((p.setting for p in points if not p.defence), None)
    if base is None or not runs[base] or not all(runs.values()):
        return [plain]
    found = [
        _with_utility(plain, measure, runs, base, strengths, rng)
        for measure in Measure
        if all(_value(r, measure) is not None for r in runs[base])
    ]
    return found or [plain]


def _point(setting: Setting, errors: Errors, draws: FloatArray, metric: str) -> Point:
    floor = setting.floor if metric == "rmse" else ErrorFloor()
    return Point(
        setting.name,
        setting.defence,
        strength_of(errors, draws),
        floor=floor.value,
        floor_binds=floor.binds,
        rate=setting.liu_rate,
    )


def _with_utility(
    plain: Tradeoff,
    measure: Measure,
    runs: Mapping[str, Sequence[VictimTraining]],
    base: str,
    strengths: Mapping[str, FloatArray],
    rng: np.random.Generator,
) -> Tradeoff:
    """Add what each defence costs, the front and the winners."""
    losses = {p.setting: utility_loss(runs[p.setting], runs[base], measure) for p in plain.points}
    protects = np.stack([strengths[p.setting] for p in plain.points])
    costs = np.stack([_drawn(losses[p.setting], runs[p.setting], rng) for p in plain.points])
    means = np.array([p.strength.mean for p in plain.points])
    # If no attack really ran, nothing is known: such a point is on no front and wins nothing.
    silent = np.array([not p.strength.answered for p in plain.points])
    protects[silent], means[silent] = -np.inf, -np.inf
    own = np.array([losses[p.setting].mean for p in plain.points])
    front = pareto_front(own[:, None], means[:, None])[:, 0]
    often = pareto_front(costs, protects).mean(axis=1)
    points = tuple(
        replace(p, utility=losses[p.setting], on_front=bool(on), front_probability=float(share))
        for p, on, share in zip(plain.points, front, often, strict=True)
    )
    names = [p.defence for p in plain.points]
    winners = tuple(_winner(level, names, costs, protects) for level in measure.levels)
    seeds = min(len(r) for r in runs.values())
    return replace(plain, measure=measure.value, seeds=seeds, points=points, winners=winners)


def utility_loss(
    runs: Sequence[VictimTraining], base: Sequence[VictimTraining], measure: Measure
) -> UtilityLoss:
    """Return the loss of trainings, compared with those without a defence and the same seeds."""
    sign = -1.0 if measure is Measure.ACCURACY else 1.0
    undefended = {r.seed: _value(r, measure) for r in base}
    values = [_value(r, measure) for r in runs]
    diverged = sum(r.diverged for r in runs)
    finite = [v for v in values if v is not None]
    value = float(np.mean(finite)) if finite else math.nan
    if diverged:
        return UtilityLoss(math.inf, None, None, value, diverged)
    differences = [
        sign * (v - other)
        for r, v in zip(runs, values, strict=True)
        if v is not None and (other := undefended.get(r.seed)) is not None
    ]
    found = mean_interval(differences)
    if not math.isfinite(found.half):
        return UtilityLoss(found.estimate, None, None, value)
    return UtilityLoss(found.estimate, found.low, found.high, value)


def _value(run: VictimTraining, measure: Measure) -> float | None:
    return run.accuracy if measure is Measure.ACCURACY else run.training_loss


def _drawn(
    loss: UtilityLoss, runs: Sequence[VictimTraining], rng: np.random.Generator
) -> FloatArray:
    """Draw a defence's cost from Student's distribution: few seeds cannot be resampled."""
    spread = rng.standard_t(max(1, len(runs) - 1), size=RESAMPLES)
    if loss.low is None or loss.high is None or not math.isfinite(loss.mean):
        return np.full(RESAMPLES, loss.mean)
    error = (loss.high - loss.low) / 2 / student_quantile(0.95, len(runs) - 1)
    return loss.mean + error * spread


def pareto_front(losses: FloatArray, strengths: FloatArray) -> NDArray[np.bool_]:
    """Return which points no other dominates, for ``losses`` and ``strengths`` (points, draws).

    A point dominates another if it loses no more and protects no less, and one of the two is
    strict. Points that diverged (an infinite loss), and those against which no attack ran (a
    strength of minus infinity), are on no front.

    >>> losses, strengths = np.array([[0.0], [1.0], [2.0]]), np.array([[1.0], [3.0], [2.0]])
    >>> pareto_front(losses, strengths)[:, 0].tolist()
    [True, True, False]
    """
    no_worse = (losses[:, None] <= losses[None]) & (strengths[:, None] >= strengths[None])
    better = (losses[:, None] < losses[None]) | (strengths[:, None] > strengths[None])
    known = np.isfinite(losses) & np.isfinite(strengths)
    front: NDArray[np.bool_] = ~(no_worse & better).any(axis=0) & known
    return front


def _winner(level: float, names: Sequence[str], costs: FloatArray, protects: FloatArray) -> Winner:
    """Count how often each point protects best among those that cost at most ``level``."""
    allowed = np.where(costs <= level, protects, -np.inf)
    best = allowed.max(axis=0)
    # If several protect equally (as if nothing were sent), the cheapest of them wins.
    cheapest = np.where(allowed == best, costs, np.inf).argmin(axis=0)
    shares = np.bincount(cheapest[np.isfinite(best)], minlength=len(names)) / len(cheapest)
    order = np.argsort(-shares, kind="stable")
    contenders = tuple(
        Contender(names[i], float(shares[i]))
        for place, i in enumerate(order)
        if shares[i] >= _WORTH_NAMING or (place < 2 and shares[i] > 0)
    )
    return Winner(level, bool(shares[order[0]] >= SURE), contenders)


def _sentence(tradeoff: Tradeoff, winner: Winner) -> str:
    points = f"{100 * winner.utility_loss:g}"
    cost = f"{points} point{'' if points == '1' else 's'} of accuracy"
    if tradeoff.measure == Measure.TRAINING_LOSS.value:
        cost = f"{winner.utility_loss:g} of training loss"
    named = [f"{c.defence or 'no defence'} ({c.probability:.0%})" for c in winner.contenders]
    if winner.told:
        text = f"{winner.contenders[0].defence or 'no defence'} protects best"
    elif not named:
        text = "undecided, because no attack really ran"
    else:
        text = f"undecided between {', '.join(named)}"
    return f"{tradeoff.group}, at a loss of at most {cost}: {text}"
