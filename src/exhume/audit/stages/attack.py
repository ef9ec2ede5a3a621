"""Attack: publish, run every attack on every target, and only then look at the truth."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exhume.audit.given_starts import begun, columns
from exhume.audit.plan import CHUNK, Plan, Unit
from exhume.audit.scoring import Scores, members, scores_of
from exhume.audit.setting import ThreatSetting
from exhume.audit.stages.base import Job, Stage
from exhume.audit.stages.expense import Cost, FinishedWork, TriedExpense, peak_memory, stored_cost
from exhume.audit.stages.large_shadow_sets import on_few
from exhume.config import Config
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.attack import Attack, nothing
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.release import Release
from exhume.protocol.seeds import stream
from exhume.runlog.outcome import Outcome, Trial, canonical
from exhume.runlog.store import Store
from exhume.runtime import Executor
from exhume.runtime.threads import one_thread
from exhume.runtime.versions import versions

if TYPE_CHECKING:
    from exhume.audit.costs import Estimate

_KEPT_CANDIDATES = 4
_LONG_SECONDS = 20.0
"""A first trial that takes longer is not repeated to tell apart what it spends once."""


@dataclass(frozen=True, eq=False)
class Batch:
    """The result of one attack on one unit: outcomes, and their candidates as arrays by name."""

    outcomes: tuple[Outcome, ...]
    artefact: str
    arrays: dict[str, Array]


def run_unit(plan: Plan, unit: Unit, done: frozenset[str]) -> list[Batch]:
    """Publish the unit's releases once and run every attack on those it has not finished."""
    with one_thread():
        setting = plan.setting(unit.setting)
        groups = setting.groups(unit.targets)
        todo = [
            (attack, _left(plan, unit, attack, groups, done)) for attack in plan.attacks_on(unit)
        ]
        wanted = sorted({place for _, places in todo for place in places})
        if not wanted:
            return []
        made = setting.releases([groups[i] for i in wanted], plan.config.audit.seed)
        releases = dict(zip(wanted, made, strict=True))
        found = []
        for attack, places in todo:
            targets = tuple(target for place in places for target in groups[place])
            part = Unit(unit.setting, targets)
            trials, seen = plan.trials(part, attack), [releases[place] for place in places]
            if trials:
                found.append(run_attack(plan, setting, part, attack, trials, seen))
        return found


def _left(
    plan: Plan,
    unit: Unit,
    attack: Attack,
    groups: Sequence[tuple[int, ...]],
    done: frozenset[str],
) -> list[int]:
    """Return the releases of a unit that an attack has not finished."""
    undone = {t.target for t in plan.trials(unit, attack) if t.key not in done}
    return [place for place, group in enumerate(groups) if undone.intersection(group)]


def run_attack(
    plan: Plan,
    setting: ThreatSetting,
    unit: Unit,
    attack: Attack,
    trials: Sequence[Trial],
    releases: Sequence[Release],
) -> Batch:
    """Run one attack on a unit's releases, and score its results."""
    groups = setting.groups(unit.targets)
    knowledge = [setting.knowledge(*group) for group in groups]
    firsts = [trials[unit.targets.index(group[0])] for group in groups]
    started = time.perf_counter()
    table = plan.config.setting[unit.setting]
    if table.start is None:
        found = _attacked(attack, releases, knowledge, firsts)
    else:
        own = [begun(attack, setting, table, group, plan.config.audit.seed) for group in groups]
        alone = zip(own, releases, knowledge, firsts, strict=True)
        found = [_attacked(one, [r], [k], [t])[0] for one, r, k, t in alone]
    seconds = (time.perf_counter() - started) / len(trials)
    results = members(plan, unit.setting, groups, found, blind=attack.baseline)
    scores = scores_of(plan, unit.setting, unit.targets, results)
    beside = columns(setting, table, groups, results, plan.config.audit.seed)
    scores = [replace(s, by_name={**s.by_name, **b}) for s, b in zip(scores, beside, strict=True)]
    name = f"{unit.setting:03d}-{attack.name}-{unit.targets[0]:05d}"
    outcomes = tuple(
        replace(
            _outcome(trial, result, score),
            artefact=name,
            row=row,
            seconds=seconds,
            baseline=attack.baseline,
        )
        for row, (trial, result, score) in enumerate(zip(trials, results, scores, strict=True))
    )
    arrays = {
        f"{row}.samples": result.samples[:_KEPT_CANDIDATES]
        for row, result in enumerate(results)
        if len(result)
    }
    return Batch(outcomes, name, arrays or {"none": np.zeros(1)})


def _attacked(
    attack: Attack,
    releases: Sequence[Release],
    knowledge: Sequence[Knowledge],
    trials: Sequence[Trial],
) -> list[Reconstruction]:
    """Run the attack; an error is recorded as such, never as a failure."""
    rngs = [stream(t.seed, "attack", t.setting, attack.name, t.target) for t in trials]
    try:
        results = attack.reconstruct_each(releases, knowledge, rngs=rngs)
        for result, one in zip(results, knowledge, strict=True):
            _require_shape(result, one)
        return results
    except Exception as error:  # whatever an attack may raise: it is recorded, not hidden
        if len(trials) > 1:
            # The error of one release must not affect the others.
            alone = zip(releases, knowledge, trials, strict=True)
            return [_attacked(attack, [r], [k], [t])[0] for r, k, t in alone]
        message = " ".join(f"{type(error).__name__}: {error}".split())[:500]
        return [nothing(knowledge[0], Status.CRASHED, message)]


def _require_shape(result: Reconstruction, knowledge: Knowledge) -> None:
    found, expected = result.samples.shape[1:], knowledge.record_shape
    if found != expected:
        raise ValueError(f"candidates of shape {found}, a record has shape {expected}")


def _outcome(trial: Trial, result: Reconstruction, scores: Scores) -> Outcome:
    first = len(result) > 0
    return Outcome(
        trial,
        status=result.status.name,
        message=result.message,
        success=scores.success,
        distance=scores.distance,
        threshold=scores.threshold,
        scores=scores.by_name,
        label_correct=scores.label_correct,
        confidence=_number(result.confidence) if first else None,
        error_estimate=_number(result.error_estimate) if first else None,
        stats={**result.stats, "candidates": len(result)},
    )


def _number(values: FloatArray | None) -> float | None:
    return None if values is None else float(values[0])


class RunAttacks(Stage):
    """Runs every attack on every target; a task is a unit of targets under all their attacks."""

    doing: ClassVar[str] = "attacks"

    def size(self, plan: Plan) -> int:
        """Return how many trials are planned."""
        return sum(len(plan.attacks_on(unit)) * len(unit.targets) for unit in plan.units())

    def done(self, plan: Plan, log: Store) -> int:
        """Return how many of them the log holds; a smaller budget plans fewer than it may hold."""
        return min(len(log.keys()), self.size(plan))

    def jobs(self, plan: Plan, log: Store) -> Iterable[Job[Plan, UnitTask, list[Batch]]]:
        """Run the trials that the log does not hold."""
        done = frozenset(log.keys())
        yield attack_job(plan, units_left(plan, done), done, kept_in(log))

    def finish(self, plan: Plan, log: Store) -> None:
        """Note what was left out past the deadline."""
        if plan.deadline is not None:
            note_planned(log, begun_by_the_deadline(plan, frozenset(log.keys())))

    def expenses(self, plan: Plan) -> Sequence[AttackTrials]:
        """Return the trials of every attack on every setting."""
        return [
            AttackTrials(index, plan.attacks.index(attack))
            for index in range(len(plan.config.setting))
            for attack in plan.attacks_on(Unit(index, (0,)))
        ]


class AttackFirst(Stage):
    """Runs the attacks on settings that need no shadow models, while others wait for theirs.

    The first verdict need not wait for hundreds of trainings. Its trials are counted with those of
    ``RunAttacks``; where all settings can start at once or none can, nothing is run here.
    """

    doing: ClassVar[str] = "attacks"

    def workers(self, executor: Executor) -> Executor | None:
        """Leave the stage out where shadow models are not trained ahead of the attacks."""
        return executor if executor.shares_files else None

    def jobs(self, plan: Plan, log: Store) -> Iterable[Job[Plan, UnitTask, list[Batch]]]:
        """Run the trials that the log does not hold, of settings without shadow models."""
        done = frozenset(log.keys())
        left = units_left(plan, done)
        ready = [unit for unit in left if not needs_shadows(plan, unit)]
        if 0 < len(ready) < len(left):
            yield attack_job(plan, ready, done, kept_in(log))


def needs_shadows(plan: Plan, unit: Unit) -> bool:
    """Whether an attack on a unit learns from shadow models."""
    from exhume.shadows import OrdersShadows

    return any(isinstance(attack, OrdersShadows) for attack in plan.attacks_on(unit))


def kept_in(log: Store) -> Callable[[UnitTask, list[Batch]], int]:
    """Return what stores the results of a task, and counts their trials."""

    def keep(task: UnitTask, batches: list[Batch]) -> int:
        for batch in batches:
            log.save_arrays(batch.artefact, batch.arrays)
            log.add_outcomes(batch.outcomes, versions())
        return sum(len(batch.outcomes) for batch in batches)

    return keep


def attack_job(
    plan: Plan,
    units: Sequence[Unit],
    done: frozenset[str],
    keep: Callable[[UnitTask, list[Batch]], int],
) -> Job[Plan, UnitTask, list[Batch]]:
    """Return the work on units, without the attacks whose trials are all ``done``."""
    tasks = [UnitTask(unit, plan.keys(unit) & done if done else done) for unit in units]

    def named(task: UnitTask) -> str:
        unit = task.unit
        name = plan.config.setting[unit.setting].name
        return f"setting {name!r}, targets {unit.targets[0]} to {unit.targets[-1]}"

    return Job(run_task, plan, tasks, keep, named)


def note_planned(log: Store, plan: Plan) -> None:
    """Write down what a run is to hold when it is finished."""
    planned = [plan.planned(index) for index in range(len(plan.config.setting))]
    log.set_meta("expected_trials", str(RunAttacks().size(plan)))
    log.set_meta("planned", canonical({"budget": plan.budget, "targets": planned}))


def begun_by_the_deadline(plan: Plan, done: frozenset[str]) -> Plan:
    """Return the plan without the targets that its deadline left out."""
    limits = [plan.planned(index) for index in range(len(plan.config.setting))]
    for unit in units_left(plan, done):
        limits[unit.setting] = min(limits[unit.setting], unit.targets[0])
    return replace(plan, limits=tuple(limits))


def units_left(plan: Plan, done: frozenset[str]) -> list[Unit]:
    """Return the units with a trial that is not done."""
    return [unit for unit in plan.units() if not plan.keys(unit) <= done]


@dataclass(frozen=True)
class UnitTask:
    """A unit of work, and the keys of its trials that are done."""

    unit: Unit
    done: frozenset[str]


def run_task(plan: Plan, task: UnitTask) -> list[Batch]:
    """Run a unit in any process, on the plan's files; nothing past the plan's deadline."""
    if plan.deadline is not None and plan.deadline.over(task.unit):
        return []
    plan.require_same_files()
    return run_unit(plan, task.unit, task.done)


@dataclass(frozen=True)
class AttackTrials(TriedExpense):
    """The trials of one attack on one setting, by its place among the plan's attacks."""

    attack: int

    def label(self, plan: Plan) -> str:
        """Return the attack's name."""
        return plan.attacks[self.attack].name

    def planned(self, plan: Plan) -> int:
        """Return how many trials are planned."""
        return plan.planned(self.setting)

    def left(self, estimate: Estimate) -> int:
        """Return how many of them are not done yet."""
        plan, done = estimate.plan, estimate.done.keys
        if not done:
            return self.planned(plan)
        unit = Unit(self.setting, tuple(range(self.planned(plan))))
        return sum(t.key not in done for t in plan.trials(unit, plan.attacks[self.attack]))

    def longest(self, estimate: Estimate) -> float:
        """Return what one unit takes, with what is spent once."""
        cost, left = self.cost(estimate), self.left(estimate)
        return cost.once + min(CHUNK, left) * cost.each if left else 0.0

    def stored(self, plan: Plan, done: FinishedWork) -> Cost | None:
        """Return what the trials in the folder cost."""
        (first,) = plan.trials(Unit(self.setting, (0,)), plan.attacks[self.attack])
        return stored_cost(done.seconds.get(first.settings, ()))

    def tried(self, plan: Plan) -> Cost:
        """Attack one release, and another one if that was quick: the rest was spent once.

        What an attack learns from thousands of shadow models it learns from a few here.
        """
        attack, setting = plan.attacks[self.attack], plan.setting(self.setting)
        groups, spent, times, memory = first_groups(plan, self.setting), list[float](), 1, 0
        for group in groups:
            unit, releases = Unit(self.setting, group), published(plan, self.setting, group)
            trials = plan.trials(unit, attack)
            attack, more, bytes_then = on_few(attack, releases[0], setting.knowledge(*group))
            times, memory = times * more, memory + bytes_then
            started = time.perf_counter()
            run_attack(plan, setting, unit, attack, trials, releases)
            spent.append(time.perf_counter() - started)
            if spent[0] > _LONG_SECONDS and times == 1:
                break
        size, last = len(groups[0]), spent[-1]
        once = times * max(0.0, spent[0] - last)
        return Cost(once, last / size, size * len(spent), peak_memory() + memory)


def first_groups(plan: Plan, index: int) -> list[tuple[int, ...]]:
    """Return the targets of a setting's first release, and of the second if there is one."""
    batch = plan.config.setting[index].batch or 1
    return plan.setting(index).groups(range(min(2 * batch, plan.targets(index))))


def published(plan: Plan, index: int, group: tuple[int, ...]) -> Sequence[Release]:
    """Publish one group of targets; the last few are remembered."""
    return _published(plan.config, plan.files, plan.live, index, group)


@lru_cache(maxsize=4)
def _published(
    config: Config,
    files: tuple[str, ...],
    live: tuple[ThreatSetting, ...],
    index: int,
    group: tuple[int, ...],
) -> Sequence[Release]:
    setting = Plan(config, (), files, live=live).setting(index)
    return setting.releases([group], config.audit.seed)
