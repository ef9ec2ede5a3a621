"""Train: what a defence costs. The victim is really trained with it, from several seeds."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from exhume.audit.plan import Plan
from exhume.audit.setting import ThreatSetting
from exhume.audit.stages.base import Job, Stage
from exhume.audit.stages.expense import (
    Cost,
    FinishedWork,
    TriedExpense,
    peak_memory,
    seconds_of,
    stored_cost,
)
from exhume.config import NetworkReleaseTable, UtilityTable
from exhume.protocol.arrays import Array
from exhume.protocol.errors import DivergedError, InputError
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.records import Records
from exhume.protocol.seeds import stream
from exhume.runlog.setting import Setting, VictimTraining
from exhume.runlog.store import Store
from exhume.runtime.threads import one_thread

if TYPE_CHECKING:
    import dp_accounting

    from exhume.audit.costs import Estimate
    from exhume.training.federated import Federated


@dataclass(frozen=True)
class TrainingTask:
    """One training: the setting by its place in the plan, and the number of its seed.

    ``rounds`` trains less than the setting says, to measure the time.
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


class TrainWithDefences(Stage):
    """Trains every setting that asks for its utility, from several seeds; a task is one seed."""

    doing: ClassVar[str] = "trainings"

    def size(self, plan: Plan) -> int:
        """Return how many trainings there are."""
        return len(training_tasks(plan))

    def done(self, plan: Plan, log: Store) -> int:
        """Return how many of them the log holds."""
        return self.size(plan) - len(trainings_left(plan, log.settings()))

    def jobs(self, plan: Plan, log: Store) -> Iterable[Job[Plan, TrainingTask, VictimTraining]]:
        """Do the trainings that the log does not hold."""
        names = [table.name for table in plan.config.setting]

        def keep(task: TrainingTask, run: VictimTraining) -> int:
            log.add_training(names[task.setting], run)
            return 1

        todo = trainings_left(plan, log.settings())
        yield Job(train, plan, todo, keep, lambda task: f"setting {names[task.setting]!r}, utility")

    def expenses(self, plan: Plan) -> Sequence[Trainings]:
        """Return the trainings of every setting that has some."""
        return [
            Trainings(index) for index in dict.fromkeys(t.setting for t in training_tasks(plan))
        ]


def trainings_left(plan: Plan, settings: Sequence[Setting]) -> list[TrainingTask]:
    """Return the trainings of a plan that are not in the folder yet."""
    done = {(setting.name, run.seed) for setting in settings for run in setting.trainings}
    names = [table.name for table in plan.config.setting]
    return [t for t in training_tasks(plan) if (names[t.setting], t.seed) not in done]


@dataclass(frozen=True)
class Trainings(TriedExpense):
    """The trainings of one setting, with its defences in the loop."""

    def label(self, plan: Plan) -> str:
        """Return what they are."""
        return "(trainings)"

    def planned(self, plan: Plan) -> int:
        """Return how many there are."""
        return sum(task.setting == self.setting for task in training_tasks(plan))

    def left(self, estimate: Estimate) -> int:
        """Return how many of them are not done yet."""
        name = estimate.plan.config.setting[self.setting].name
        return max(0, self.planned(estimate.plan) - len(estimate.done.trained.get(name, ())))

    def stored(self, plan: Plan, done: FinishedWork) -> Cost | None:
        """Return what the trainings in the folder cost."""
        return stored_cost(done.trained.get(plan.config.setting[self.setting].name, ()))

    def tried(self, plan: Plan) -> Cost:
        """Train a few rounds and a few more: the difference is the time of a round."""
        utility = plan.config.setting[self.setting].utility
        assert utility is not None
        plan.setting(self.setting)
        few, more = (min(count, utility.rounds) for count in (2, 12))
        first, second = (
            seconds_of(partial(train, plan, TrainingTask(self.setting, 0, rounds)))
            for rounds in (few, more)
        )
        each = max(0.0, second - first) / max(1, more - few)
        return Cost(0.0, second + (utility.rounds - more) * each, 1, peak_memory())


def train(plan: Plan, task: TrainingTask) -> VictimTraining:
    """Train with the setting's defences in the loop, and test the result.

    The initial parameters, the batches and the draws of defences come from streams of the seed
    alone, so that the settings of a grid differ only in their defences.
    """
    plan.require_same_files()
    with one_thread():
        started = time.process_time()
        run = _trained(plan, task)
        return replace(run, seconds=time.process_time() - started)


def _trained(plan: Plan, task: TrainingTask) -> VictimTraining:
    from exhume.training.gradient import gradient_step
    from exhume.training.scores import scored

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
        failed = VictimTraining(
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


def utility_records(
    setting: ThreatSetting, utility: UtilityTable, seed: int
) -> tuple[Records, Records]:
    """Return records to train and to test on that nobody in the threat model has.

    They are the same for every seed and every defence; no copy of a training record is tested on.
    """
    from exhume.data import without_copies

    have, wanted = 0 if setting.reserve is None else len(setting.reserve), utility.records
    if setting.reserve is None or have < wanted + utility.test:
        raise InputError(
            f"records = {wanted} and test = {utility.test} need {wanted + utility.test} records, "
            f"and the threat model leaves {have} unused: ask for fewer, or take more data"
        )
    order = stream(seed, "utility-records").permutation(have)
    data = setting.reserve.take(order[:wanted])
    others = setting.reserve.take(order[wanted : wanted + 2 * utility.test + 100])
    test = without_copies(others, data).take(slice(0, utility.test))
    if len(test) < utility.test:
        raise InputError(
            f"only {len(test)} of test = {utility.test} records are not copies of training records"
        )
    return data, test


def _mechanism(plan: Plan, index: int) -> Mechanism:
    """Return the setting's mechanism for batches of the training's size, at its start."""
    from exhume.audit.build_mechanism import build_batch_mechanism
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


def _path(mechanism: Mechanism, utility: UtilityTable) -> Callable[..., dict[str, Array]]:
    """Return the trainer: the built-in loop, or Opacus if requested and equivalent."""
    from exhume.training.federated import Federated

    if utility.path == "opacus":
        from exhume.defences.with_opacus import applies, train_with_opacus

        if applies(mechanism):
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
