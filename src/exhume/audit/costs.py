"""What an audit will cost: seconds a setting and attack, from a trial or two or an earlier run."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from exhume.attacks.base import Attack
from exhume.audit.executors import Processes
from exhume.audit.plan import CHUNK, Plan, Unit
from exhume.audit.store import Store
from exhume.audit.trial import run_attack
from exhume.audit.utility import TrainingTask, runs_of, train
from exhume.config import Config
from exhume.release import Release

_LONG_SECONDS = 20.0
"""A first trial that takes longer is not repeated to tell its one-off part apart."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Cell:
    """One attack on one setting, by their places in the plan.

    None stands for what a setting needs beside attacks: its preparation and its releases, or, where
    ``training``, the trainings that tell what its defence costs.
    """

    setting: int
    attack: int | None
    training: bool = False


@dataclass(frozen=True)
class Cost:
    """Seconds spent once and for each target, and the largest memory of a process so far (bytes).

    ``trials`` counts the trials that this was measured on; ``stored`` says that they are an earlier
    run's, whose ``each`` has everything that was spent once in it.
    """

    once: float
    each: float
    trials: int
    memory: int = 0
    stored: bool = False


@dataclass(frozen=True)
class Done:
    """What a run folder holds: keys of trials, and seconds by what a trial depends on.

    ``trained`` are the seconds of trainings by setting.
    """

    keys: frozenset[str]
    seconds: dict[str, tuple[float, ...]]
    trained: dict[str, tuple[float, ...]] = field(default_factory=dict)


def done_in(folder: Path) -> Done:
    """Return what is done in a folder; nothing where it is no run folder yet."""
    if not (folder / "records.sqlite").is_file():
        return Done(frozenset(), {})
    seconds = defaultdict(list)
    with Store.open(folder) as store:
        records, facts = store.records(), store.facts()
    for record in records:
        seconds[record.trial.settings].append(record.seconds)
    keys = frozenset(record.trial.key for record in records)
    trained = {name: tuple(run.seconds for run in runs_of(fact)) for name, fact in facts.items()}
    return Done(keys, {settings: tuple(found) for settings, found in seconds.items()}, trained)


def costs_of(plan: Plan, done: Done, progress: Progress) -> dict[Cell, Cost]:
    """Return the cost of every cell of a plan.

    Attacks that an earlier run in the folder has tried cost what they cost there; the others are
    tried on a target or two, in a process of its own that shows how much memory it takes.
    """
    known: dict[Cell, Cost] = {}
    todo: list[Cell] = []
    for index in range(len(plan.config.setting)):
        todo.append(Cell(index, None))
        table, training = plan.config.setting[index], Cell(index, None, training=True)
        if table.utility is not None and done.trained.get(table.name):
            known[training] = _stored(done.trained[table.name])
        elif table.utility is not None:
            todo.append(training)
        on_it = plan.attacks_on(Unit(index, (0,)))
        for place, attack in enumerate(plan.attacks):
            if not any(attack is one for one in on_it):
                continue
            cell, settings = Cell(index, place), _settings(plan, index, attack)
            if settings in done.seconds:
                known[cell] = _stored(done.seconds[settings])
            else:
                todo.append(cell)
    progress(0, len(todo))
    for count, (place, cost) in enumerate(Processes(1).map(measured, plan, todo), start=1):
        known[todo[place]] = cost
        progress(count, len(todo))
    return known


def _settings(plan: Plan, index: int, attack: Attack) -> str:
    return plan.trials(Unit(index, (0,)), attack)[0].settings


def _stored(seconds: Sequence[float]) -> Cost:
    return Cost(0.0, sum(seconds) / len(seconds), len(seconds), stored=True)


def measured(plan: Plan, cell: Cell) -> Cost:
    """Measure one cell here, and forget what came out."""
    from exhume.audit.threads import one_thread

    with one_thread():
        if cell.training:
            return _training(plan, cell.setting)
        if cell.attack is None:
            return _preparation(plan, cell.setting)
        return _attack(plan, cell.setting, plan.attacks[cell.attack])


def _preparation(plan: Plan, index: int) -> Cost:
    """Build a setting and measure its facts; publish one release."""
    from exhume.audit.facts import measure

    started = time.perf_counter()
    measure(plan, index)
    once, started = time.perf_counter() - started, time.perf_counter()
    (group, *_) = _groups(plan, index)
    _releases(plan, index, group)
    each = (time.perf_counter() - started) / len(group)
    return Cost(once, each, len(group), _peak_memory())


def _training(plan: Plan, index: int) -> Cost:
    """Train a few rounds and a few more: what they differ by is what a round takes."""
    utility = plan.config.setting[index].utility
    assert utility is not None
    plan.setting(index)
    few, more = (min(count, utility.rounds) for count in (2, 12))
    spent = []
    for rounds in (few, more):
        started = time.perf_counter()
        train(plan, TrainingTask(index, 0, rounds))
        spent.append(time.perf_counter() - started)
    each = max(0.0, spent[1] - spent[0]) / max(1, more - few)
    return Cost(0.0, spent[1] + (utility.rounds - more) * each, 1, _peak_memory())


def _attack(plan: Plan, index: int, attack: Attack) -> Cost:
    """Try an attack on one release, and where that is quick on another: the rest was spent once."""
    setting, groups, spent = plan.setting(index), _groups(plan, index), []
    for group in groups:
        unit, releases = Unit(index, group), _releases(plan, index, group)
        started = time.perf_counter()
        run_attack(plan, setting, unit, attack, plan.trials(unit, attack), releases)
        spent.append(time.perf_counter() - started)
        if spent[0] > _LONG_SECONDS:
            break
    size, last = len(groups[0]), spent[-1]
    return Cost(max(0.0, spent[0] - last), last / size, size * len(spent), _peak_memory())


def _groups(plan: Plan, index: int) -> list[tuple[int, ...]]:
    """Return the targets of the first release, and of the second if there is one."""
    batch = plan.config.setting[index].batch or 1
    everyone = range(min(2 * batch, plan.targets(index)))
    return plan.setting(index).groups(everyone)


def _releases(plan: Plan, index: int, group: tuple[int, ...]) -> Sequence[Release]:
    return _published(plan.config, plan.files, index, group)


@lru_cache(maxsize=4)
def _published(
    config: Config, files: tuple[str, ...], index: int, group: tuple[int, ...]
) -> Sequence[Release]:
    setting = Plan(config, (), files).setting(index)
    return setting.releases([group], config.audit.seed)


def _peak_memory() -> int:
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


@dataclass(frozen=True)
class Estimate:
    """What is left to do of a plan, and how long that takes ``workers`` at once."""

    plan: Plan
    costs: dict[Cell, Cost]
    done: frozenset[str]
    workers: int
    trained: Mapping[str, int] = field(default_factory=dict)
    """How many trainings of a setting are done."""

    def trials(self, cell: Cell) -> int:
        """Return how many trials, or trainings, of a cell are planned."""
        utility = self.plan.config.setting[cell.setting].utility
        if cell.training and utility is not None:
            return utility.seeds
        return 0 if cell.attack is None else self.plan.planned(cell.setting)

    def left(self, cell: Cell) -> int:
        """Return how many of them are not done yet."""
        if cell.training:
            name = self.plan.config.setting[cell.setting].name
            return max(0, self.trials(cell) - self.trained.get(name, 0))
        if cell.attack is None:
            return max((self.left(one) for one in self._attacks(cell.setting)), default=0)
        if not self.done:
            return self.trials(cell)
        attack = self.plan.attacks[cell.attack]
        unit = Unit(cell.setting, tuple(range(self.plan.planned(cell.setting))))
        return sum(t.key not in self.done for t in self.plan.trials(unit, attack))

    def seconds(self, cell: Cell) -> float:
        """Return how long one worker has for what is left of a cell."""
        cost, left = self.costs[cell], self.left(cell)
        return cost.once + left * cost.each if left else 0.0

    def total(self) -> float:
        """Return how long everything takes: preparations come first, the rest is shared."""
        first, shared = 0.0, 0.0
        for cell in self.costs:
            if cell.attack is None and not cell.training and self.left(cell):
                first += self.costs[cell].once
                shared -= self.costs[cell].once
            shared += self.seconds(cell)
        shared += sum(map(self.judging, range(len(self.plan.config.setting))))
        return first + max(shared / self.workers, self._longest())

    def judging(self, index: int) -> float:
        """Return how long one worker has for the networks that judge a setting's candidates."""
        from exhume.audit.authenticity import judging_seconds

        return judging_seconds(self, index)

    def memory(self) -> int:
        """Return the bytes that one worker takes, as far as they were measured."""
        return max((cost.memory for cost in self.costs.values()), default=0)

    def _attacks(self, index: int) -> list[Cell]:
        return [c for c in self.costs if c.setting == index and c.attack is not None]

    def _longest(self) -> float:
        """The longest piece of work that can't be shared: a unit, with what is spent once."""
        longest = 0.0
        for index in range(len(self.plan.config.setting)):
            left = {cell: self.left(cell) for cell in self._attacks(index)}
            spent = sum(
                self.costs[cell].once + min(CHUNK, count) * self.costs[cell].each
                for cell, count in left.items()
                if count
            )
            longest = max(longest, spent)
        return longest
