"""What a defence costs: the victim is really trained with it, from several seeds."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from exhume.audit.executors import Executor
from exhume.audit.plan import Plan
from exhume.audit.setting import Setting
from exhume.audit.threads import one_thread
from exhume.config import NetworkReleaseTable, UtilityTable
from exhume.errors import DivergedError, InputError
from exhume.mechanism import Mechanism
from exhume.records import Records
from exhume.seeds import stream

if TYPE_CHECKING:
    import dp_accounting

    from exhume.audit.store import Store
    from exhume.training.federated import Federated


@dataclass(frozen=True)
class Run:
    """One training with the defence in the loop, from one seed.

    Losses are means over the training and the test records, ``accuracy`` the share of test records
    classified rightly (None in a regression); all None where the training ``diverged``.
    ``epsilon`` at ``delta`` is what the whole training guarantees a record, None for nothing.
    """

    seed: int
    training_loss: float | None
    test_loss: float | None
    accuracy: float | None
    diverged: bool = False
    rounds: int = 0
    seconds: float = 0.0
    epsilon: float | None = None
    delta: float | None = None


@dataclass(frozen=True)
class Mean:
    """A mean over seeds with Student's 95 % interval; without one where there is one seed."""

    mean: float
    low: float | None = None
    high: float | None = None


def mean_interval(values: Sequence[float], *, confidence: float = 0.95) -> Mean:
    """Return the mean of a few values with Student's interval.

    >>> found = mean_interval([1.0, 2.0, 3.0])
    >>> found.mean, round(found.low, 3), round(found.high, 3)
    (2.0, -0.484, 4.484)
    """
    if not values:
        return Mean(math.nan)
    mean = float(np.mean(values))
    if len(values) == 1:
        return Mean(mean)
    from scipy.stats import t

    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    half = float(t.ppf((1 + confidence) / 2, len(values) - 1)) * error
    return Mean(mean, mean - half, mean + half)


def runs_of(fact: Mapping[str, Any]) -> tuple[Run, ...]:
    """Return the trainings among a setting's facts, in the order of their seeds."""
    return tuple(Run(**plain) for plain in fact.get("trainings", ()))


@dataclass(frozen=True)
class TrainingTask:
    """One training: the setting by its place in the plan, and the number of its seed.

    ``rounds`` trains less than the setting says, to tell what it costs.
    """

    setting: int
    seed: int
    rounds: int | None = None


def training_tasks(plan: Plan) -> list[TrainingTask]:
    """Return every training of a plan."""
    tables = [(index, table.utility) for index, table in enumerate(plan.config.setting)]
    return [
        TrainingTask(index, seed)
        for index, utility in tables
        if utility is not None
        for seed in range(utility.seeds)
    ]


def train_settings(
    plan: Plan, store: Store, executor: Executor, tell: Callable[[int], None]
) -> None:
    """Train what isn't trained yet, and keep each training's outcome as soon as it is there."""
    names = [table.name for table in plan.config.setting]
    wanted = training_tasks(plan)
    todo = trainings_left(plan, store.facts())
    if not todo:
        return
    tell(len(wanted) - len(todo))
    with closing(executor.map(train, plan, todo)) as results:
        for count, (place, run) in enumerate(results, start=1):
            name = names[todo[place].setting]
            kept = {one.seed: one for one in (*runs_of(store.facts()[name]), run)}
            plain = [asdict(kept[seed]) for seed in sorted(kept)]
            store.amend_facts(name, {"trainings": plain})
            tell(len(wanted) - len(todo) + count)


def trainings_left(plan: Plan, facts: Mapping[str, Mapping[str, Any]]) -> list[TrainingTask]:
    """Return the trainings of a plan that a folder's facts don't hold yet."""
    done = {(name, run.seed) for name, fact in facts.items() for run in runs_of(fact)}
    names = [table.name for table in plan.config.setting]
    return [t for t in training_tasks(plan) if (names[t.setting], t.seed) not in done]


def train(plan: Plan, task: TrainingTask) -> Run:
    """Train with the setting's defences in the loop, and test what came out.

    The start, the batches and the draws of defences come from streams of the seed alone, so that
    the settings of a grid differ in nothing but their defences.
    """
    plan.require_same_files()
    with one_thread():
        started = time.process_time()
        run = _trained(plan, task)
        return replace(run, seconds=time.process_time() - started)


def _trained(plan: Plan, task: TrainingTask) -> Run:
    from exhume.training.gradient import gradient_step
    from exhume.training.scored import scored

    setting, table = plan.setting(task.setting), plan.config.setting[task.setting]
    utility, seed = table.utility, plan.config.audit.seed
    assert utility is not None
    try:
        data, test = utility_records(setting, utility, seed)
        mechanism = _mechanism(plan, task.setting)
        step = gradient_step(mechanism)
        assert step is not None
        loop = _loop(plan, task)
        epsilon = epsilon_at(loop.event(mechanism, len(data)), utility.delta)
        streams = (stream(seed, role, task.seed) for role in ("utility", "utility-defence"))
        failed = Run(
            task.seed,
            None,
            None,
            None,
            diverged=True,
            rounds=loop.rounds,
            epsilon=epsilon,
            delta=None if epsilon is None else utility.delta,
        )
        try:
            parameters = _path(mechanism, utility)(loop, mechanism, data, *streams)
        except DivergedError:
            return failed
        own, other = (scored(step, parameters, part, seen=data) for part in (data, test))
    except InputError as error:
        raise InputError(f"setting {setting.name!r}, utility: {error}") from None
    if not all(math.isfinite(loss) for loss in (own.loss, other.loss)):
        return failed
    return replace(
        failed,
        training_loss=own.loss,
        test_loss=other.loss,
        accuracy=other.accuracy,
        diverged=False,
    )


def utility_records(setting: Setting, utility: UtilityTable, seed: int) -> tuple[Records, Records]:
    """Return records to train and to test on that nobody in the threat model has.

    They are the same for every seed and every defence; none is tested on whose copy was trained on.
    """
    from exhume.data import without_copies

    have, wanted = 0 if setting.reserve is None else len(setting.reserve), utility.records
    if setting.reserve is None or have < wanted + utility.test:
        raise InputError(
            f"records = {wanted} and test = {utility.test} are to be had from the {have} records "
            "that nobody in the threat model has; ask for fewer, or take more data"
        )
    order = stream(seed, "utility-records").permutation(have)
    data = setting.reserve.take(order[:wanted])
    others = setting.reserve.take(order[wanted : wanted + 2 * utility.test + 100])
    test = without_copies(others, data).take(slice(0, utility.test))
    if len(test) < utility.test:
        raise InputError(
            f"only {len(test)} of test = {utility.test} records are no copies of training records"
        )
    return data, test


def _mechanism(plan: Plan, index: int) -> Mechanism:
    """Return the setting's mechanism for batches of the training's size, where it starts."""
    from exhume.audit.mechanisms import build_batch_mechanism
    from exhume.models.initialise import Initialisation
    from exhume.training.federated import once
    from exhume.training.gradient import GradientStep, gradient_step

    setting, table = plan.setting(index), plan.config.setting[index]
    utility, mechanism = table.utility, setting.mechanism
    assert utility is not None
    assert isinstance(table.release, NetworkReleaseTable)
    if utility.batch_size not in (None, table.batch):
        step, size = gradient_step(mechanism), {"batch_size": utility.batch_size}
        assert step is not None
        assert step.classes is not None
        other = table.model_copy(update={"release": table.release.model_copy(update=size)})
        shape, seed = setting.fixed_set.record_shape, plan.config.audit.seed
        pool = setting.shadow_targets
        mechanism = build_batch_mechanism(other, shape, step.classes, pool, seed)

    def afresh(step: GradientStep) -> GradientStep:
        drawn = Initialisation(step.initial.scheme, None)
        return replace(step, state=None, buffers=None, initial=drawn)

    return once(mechanism, None if utility.start == "released" else afresh)


def _loop(plan: Plan, task: TrainingTask) -> Federated:
    from exhume.training import SGD
    from exhume.training.federated import Federated

    table = plan.config.setting[task.setting]
    utility = table.utility
    assert utility is not None
    assert table.batch is not None
    return Federated(
        utility.rounds if task.rounds is None else min(task.rounds, utility.rounds),
        utility.batch_size or table.batch,
        SGD(utility.learning_rate, utility.momentum),
        utility.clients,
        utility.poisson,
    )


def _path(mechanism: Mechanism, utility: UtilityTable) -> Callable[..., Mapping[str, Any]]:
    """Return what trains: our own loop, or Opacus where it is asked for and does the same."""
    from exhume.defences import DPSGD
    from exhume.training.federated import Federated

    if utility.path == "opacus" and isinstance(mechanism, DPSGD):
        from exhume.training.with_opacus import train_with_opacus

        return train_with_opacus
    return Federated.train


def epsilon_at(event: dp_accounting.DpEvent, delta: float) -> float | None:
    """Return ε of an event at ``delta`` from its privacy-loss distribution; None for no guarantee.

    >>> import dp_accounting
    >>> round(epsilon_at(dp_accounting.GaussianDpEvent(4.0), 1e-5), 2)
    0.93
    """
    from exhume.bounds.event import privacy_loss

    found = privacy_loss(event)
    epsilon = math.inf if found is None else found.epsilon(delta)
    return epsilon if math.isfinite(epsilon) else None
