"""Is it real? Candidates of an attack on weights alone, judged as their adversary could.

The adversary trains networks on shadow targets of its own, attacks them, and learns there which
candidates to believe. The truth comes in afterwards, to measure how right it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from exhume.arrays import Array
from exhume.attacks.base import Attack, nothing
from exhume.attacks.starts import GivenStart, MixedStart
from exhume.audit.executors import Executor
from exhume.audit.plan import Plan, Unit
from exhume.audit.setting import Range, Setting
from exhume.audit.starting import begun
from exhume.audit.store import Store
from exhume.audit.threads import one_thread
from exhume.authenticity import Comparison, Nearest, compare, fitted, gather
from exhume.config import NetworkReleaseTable
from exhume.errors import InputError
from exhume.knowledge import Knowledge
from exhume.reconstruction import Reconstruction, Status
from exhume.records import Records
from exhume.release import Release
from exhume.seeds import stream

if TYPE_CHECKING:
    from exhume.audit.costs import Estimate


@dataclass(frozen=True)
class Examined:
    """One network to attack: the adversary's own, or (``own`` false) a release of the setting."""

    setting: int
    attack: int
    own: bool
    number: int

    @property
    def artefact(self) -> str:
        """Where the run folder keeps what came out."""
        kind = "own" if self.own else "release"
        return f"{self.setting:03d}-real-{self.attack:02d}-{kind}-{self.number:05d}"


def networks_to_judge(plan: Plan) -> int:
    """Return how many networks are attacked to judge candidates: of one's own, and releases."""
    return sum(_own(plan, i) + _releases(plan, i) for i in _judged_settings(plan))


def judge_settings(
    plan: Plan, store: Store, executor: Executor, progress: Callable[[int], None]
) -> None:
    """Judge the strongest attack's candidates of every setting whose weights are released alone.

    Every network that is attacked for it is kept in the run folder as soon as it is done; what was
    kept is not done again. ``progress`` is told how many there are.
    """
    from exhume.audit.verdicts import untold, verdicts

    chosen = {index: _strongest(plan, store, index) for index in _judged_settings(plan)}
    if not chosen:
        return
    tasks = {
        index: [] if isinstance(attack, str) else _tasks(plan, index, attack)
        for index, attack in chosen.items()
    }
    _examine_all(plan, store, executor, [t for some in tasks.values() for t in some], progress)
    for index, attack in chosen.items():
        name = plan.config.setting[index].name
        if isinstance(attack, str):
            facts = untold(attack)
        else:
            facts = verdicts(plan, index, plan.attacks[attack].name, tasks[index], store)
        store.amend_facts(name, {"authenticity": facts.plain()})


def _judged_settings(plan: Plan) -> list[int]:
    if not plan.config.audit.authenticity:
        return []
    releases = [table.release for table in plan.config.setting]
    return [i for i, r in enumerate(releases) if isinstance(r, NetworkReleaseTable) and r.alone]


def _own(plan: Plan, index: int) -> int:
    return plan.config.audit.authenticity


def _releases(plan: Plan, index: int) -> int:
    batch = plan.config.setting[index].batch
    assert batch is not None
    return plan.planned(index) // batch


def _tasks(plan: Plan, index: int, attack: int) -> list[Examined]:
    own = [Examined(index, attack, True, number) for number in range(_own(plan, index))]
    return own + [Examined(index, attack, False, n) for n in range(_releases(plan, index))]


def _strongest(plan: Plan, store: Store, index: int) -> int | str:
    """Return the place of the attack to judge in the plan, or why there is nothing to judge."""
    from exhume.audit.summary import ran

    name, setting = plan.config.setting[index].name, plan.setting(index)
    shadows = 0 if setting.shadow_targets is None else len(setting.shadow_targets)
    if shadows < 2 * setting.records:
        return (
            f"the adversary has {shadows} records of its own; to train networks on, and to have "
            f"others beside them, it takes {2 * setting.records}"
        )
    records = [r for r in store.records() if r.trial.setting == name and not r.baseline and ran(r)]
    names = dict.fromkeys(r.trial.attack for r in records)
    if not names:
        return "no attack really ran"
    reached = {n: sum(bool(r.success) for r in records if r.trial.attack == n) for n in names}
    best = max(names, key=lambda one: reached[one])
    attacks = plan.attacks_on(Unit(index, (0,)))
    return plan.attacks.index(next(a for a in attacks if a.name == best))


def _examine_all(
    plan: Plan,
    store: Store,
    executor: Executor,
    tasks: list[Examined],
    progress: Callable[[int], None],
) -> None:
    todo = [task for task in tasks if not store.arrays(task.artefact)]
    done = len(tasks) - len(todo)
    progress(done)
    with closing(executor.map(examine, plan, todo)) as results:
        for place, arrays in results:
            store.save_arrays(todo[place].artefact, arrays)
            done += 1
            progress(done)


def examine(plan: Plan, task: Examined) -> dict[str, Array]:
    """Attack one network and gather the evidence for each candidate, and what it is nearest to."""
    plan.require_same_files()
    with one_thread():
        setting = plan.setting(task.setting)
        case = _own_case(plan, setting, task) if task.own else _released(plan, setting, task)
        try:
            attack = _begun(plan, setting, task, case)
        except InputError as error:
            # Too few records of a class to begin at: this network teaches nothing.
            none = _none(case, error)
            return dict(_measured(setting, None, case, none, none, None))
        found, again = (_attacked(attack, case, rng) for rng in _streams(plan, setting, task))
        # The structural similarity is for readers; a judge has no use for it, and it is slow.
        span = None if task.own else setting.value_range
        arrays = dict(_measured(setting, attack, case, found, again, span))
        return arrays if task.own else {**arrays, **_records(case)}


@dataclass(frozen=True, eq=False)
class Case:
    """A network, what its adversary knows, what it was trained on, and as much that it was not."""

    release: Release
    knowledge: Knowledge
    training: Records | None
    held_out: Records | None


def _own_case(plan: Plan, setting: Setting, task: Examined) -> Case:
    """Train on shadow targets; the adversary of that network has the others."""
    own, held_out, rest = own_split(plan, setting, task.number)
    rng = stream(plan.config.audit.seed, "authenticity", "training", setting.name, task.number)
    known = replace(
        setting.knowledge(*range(setting.records)),
        labels=own.labels if setting.knows_labels else None,
        shadow_targets=rest,
    )
    return Case(setting.mechanism.publish(own, rng=rng), known, own, held_out)


def own_split(plan: Plan, setting: Setting, number: int) -> tuple[Records, Records, Records]:
    """Return what one of the adversary's networks is trained on, as many others, and all others.

    Networks have no record in common as long as there are enough.
    """
    pool, size, seed = setting.shadow_targets, setting.records, plan.config.audit.seed
    assert pool is not None
    role, start = ("authenticity", "split", setting.name), size * number
    order = stream(seed, *role).permutation(len(pool))
    if (number + 1) * size > len(pool):
        order, start = stream(seed, *role, number).permutation(len(pool)), 0
    order = np.roll(order, -start)
    own, rest = order[:size], order[size:]
    return pool.take(own), pool.take(rest[:size]), pool.take(rest)


def _released(plan: Plan, setting: Setting, task: Examined) -> Case:
    group = setting.groups(range(plan.planned(task.setting)))[task.number]
    (release,) = setting.releases([group], plan.config.audit.seed)
    training = None if setting.targets is None else setting.targets.take(list(group))
    held_out = None if training is None else held_out_records(plan, setting)
    return Case(release, setting.knowledge(*group), training, held_out)


def held_out_records(plan: Plan, setting: Setting) -> Records:
    """Return as many records as a release is made of that no network here was trained on."""
    size, reserve = setting.records, setting.reserve
    if reserve is None or len(reserve) < size:
        reserve = setting.shadow_targets
    assert reserve is not None
    rng = stream(plan.config.audit.seed, "authenticity", "held-out", setting.name)
    return reserve.take(rng.permutation(len(reserve))[:size])


def centre_of(setting: Setting) -> Array:
    """Return what is subtracted before correlations: the mean of the adversary's own records."""
    return np.asarray(setting.pool.mean(axis=0))


def _streams(plan: Plan, setting: Setting, task: Examined) -> list[np.random.Generator]:
    """Return the streams of the attack, as its trial had it, and of another start of it."""
    seed, name = plan.config.audit.seed, plan.attacks[task.attack].name
    first = setting.records * task.number
    role: tuple[str | int, ...] = ("attack", setting.name, name, first)
    if task.own:
        role = ("authenticity", "attack", setting.name, name, task.number)
    return [stream(seed, *role), stream(seed, *role, "again")]


def _attacked(attack: Attack, case: Case, rng: np.random.Generator) -> Reconstruction:
    try:
        return attack.reconstruct(case.release, case.knowledge, rng=rng)
    except Exception as error:  # whatever an attack may raise: its trial has it on record
        return _none(case, error)


def _none(case: Case, error: Exception) -> Reconstruction:
    return nothing(case.knowledge, Status.CRASHED, str(error)[:200])


def _measured(
    setting: Setting,
    attack: Attack | None,
    case: Case,
    found: Reconstruction,
    again: Reconstruction,
    value_range: Range | None,
) -> Iterator[tuple[str, Array]]:
    evidence = gather(
        case.release, case.knowledge, found, records=setting.records, others=(again.samples,)
    )
    yield "samples", np.asarray(found.samples, dtype=np.float32)
    yield "evidence", evidence.values
    yield "objective", np.array(_objectives(case, found))
    if case.training is None or case.held_out is None or not len(found):
        return
    seen = compare(
        found.samples,
        *(case.training.x, case.held_out.x),
        starting=_starting(attack, setting),
        centre=centre_of(setting),
        value_range=value_range,
    )
    yield from _columns(seen)


def _records(case: Case) -> dict[str, Array]:
    """Return what the report shows beside candidates, where it is known."""
    sides = {"training": case.training, "held_out": case.held_out}
    return {
        f"{side}.records": np.asarray(records.x, dtype=np.float32)
        for side, records in sides.items()
        if records is not None
    }


def _begun(plan: Plan, setting: Setting, task: Examined, case: Case) -> Attack:
    """Return the attack as it begins where the setting says, on networks of one's own too."""
    attack, table = plan.attacks[task.attack], plan.config.setting[task.setting]
    if table.start is None:
        return attack
    own = replace(setting, targets=case.training, shadow_targets=case.knowledge.shadow_targets)
    return begun(attack, own, table, range(setting.records))


def _starting(attack: Attack | None, setting: Setting) -> Array | None:
    """Return the records that a search began at, where they were given to it."""
    start = getattr(attack, "start", None)
    if not isinstance(start, GivenStart | MixedStart):
        return None
    shape = setting.fixed_set.record_shape
    return start.draw(setting.records, shape, np.random.default_rng(0))


def _objectives(case: Case, found: Reconstruction) -> list[float]:
    """Return the objective at the candidates and at the truth, NaN where it can't be told."""
    from exhume.attacks.kkt.general import read_any

    network = read_any(case.release, case.knowledge)
    sets = [found.samples, None if case.training is None else case.training.x]
    values = []
    for x in sets:
        if isinstance(network, str) or x is None or not len(x):
            values.append(float("nan"))
            continue
        scores = network.scores(np.asarray(x, dtype=np.float64).reshape(len(x), -1))
        classes = scores.argmax(axis=1) if scores.shape[1] > 1 else (scores[:, 0] > 0).astype(int)
        values.append(fitted(network, x, classes).residual)
    return values


NEAREST = ("index", "distance", "ncc", "ssim")


def _columns(seen: Comparison) -> Iterator[tuple[str, Array]]:
    yield "rank", seen.rank
    sides: dict[str, Nearest | None] = {
        "training": seen.training,
        "held_out": seen.held_out,
        "starting": seen.starting,
    }
    for side, nearest in sides.items():
        for column in NEAREST if nearest is not None else ():
            yield f"{side}.{column}", np.asarray(getattr(nearest, column))


def judging_seconds(estimate: Estimate, index: int) -> float:
    """Return how long one worker takes to judge a setting, with its dearest attack."""
    from exhume.audit.costs import Cell

    plan = estimate.plan
    if index not in _judged_settings(plan) or not estimate.left(Cell(index, None)):
        return 0.0
    batch = plan.config.setting[index].batch or 1
    attacks = [
        cost.each
        for cell, cost in estimate.costs.items()
        if cell.setting == index
        and cell.attack is not None
        and not plan.attacks[cell.attack].baseline
    ]
    each = estimate.costs[Cell(index, None)].each + 2 * max(attacks, default=0.0)
    return (_own(plan, index) + _releases(plan, index)) * batch * each
