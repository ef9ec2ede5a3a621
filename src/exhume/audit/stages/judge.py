"""Judge: is it real? Candidates of an attack on weights alone, judged as their adversary could.

The adversary trains networks on shadow targets of its own, attacks them, and learns there which
candidates to believe. The truth comes in afterwards, to measure how right it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from exhume.audit.plan import Plan, Unit
from exhume.audit.stages.attack import AttackTrials, RunAttacks
from exhume.audit.stages.base import Job, Stage
from exhume.audit.stages.expense import Cost, Expense
from exhume.audit.stages.judge_networks import NetworkTask, artefacts_of, examine
from exhume.audit.stages.judge_verdicts import untold, verdicts
from exhume.audit.stages.measure import Preparation
from exhume.config import NetworkReleaseTable
from exhume.protocol.arrays import Array
from exhume.runlog.store import Store
from exhume.runlog.strongest import by_success
from exhume.runlog.summary import attack_rows

if TYPE_CHECKING:
    from exhume.audit.costs import Estimate


class JudgeCandidates(Stage):
    """Judges the strongest attack's candidates where weights are released alone.

    A task is a network that is attacked for it: one of the adversary's own, or a release.
    """

    doing: ClassVar[str] = "judging"

    def size(self, plan: Plan) -> int:
        """Return how many networks are attacked."""
        return sum(len(_tasks(plan, index, 0)) for index in _judged_settings(plan))

    def done(self, plan: Plan, log: Store) -> int:
        """Return how many of them the log holds; none before all trials are done."""
        trials = RunAttacks()
        if not self.size(plan) or trials.done(plan, log) < trials.size(plan):
            return 0
        return sum(
            len(_tasks(plan, index, attack)) - len(_left(plan, log, index, attack))
            for index, attack in _chosen(plan, log).items()
            if isinstance(attack, int)
        )

    def jobs(self, plan: Plan, log: Store) -> Iterable[Job[Plan, NetworkTask, Mapping[str, Array]]]:
        """Attack the networks that the log does not hold."""
        todo = [
            task
            for index, attack in _chosen(plan, log).items()
            if isinstance(attack, int)
            for task in _left(plan, log, index, attack)
        ]

        def keep(task: NetworkTask, arrays: Mapping[str, Array]) -> int:
            log.save_arrays(task.artefact, arrays)
            return 1

        names = [table.name for table in plan.config.setting]
        yield Job(examine, plan, todo, keep, lambda task: f"setting {names[task.setting]!r}, judge")

    def finish(self, plan: Plan, log: Store) -> None:
        """Judge every setting from what was kept of its networks."""
        for index, attack in _chosen(plan, log).items():
            found = (
                untold(attack)
                if isinstance(attack, str)
                else verdicts(
                    plan, index, plan.attacks[attack].name, _tasks(plan, index, attack), log
                )
            )
            log.add_authenticity(plan.config.setting[index].name, found)

    def expenses(self, plan: Plan) -> Sequence[Judging]:
        """Return the networks of every setting that is judged."""
        return [Judging(index) for index in _judged_settings(plan)]


def _judged_settings(plan: Plan) -> list[int]:
    if not plan.config.audit.authenticity:
        return []
    releases = [table.release for table in plan.config.setting]
    return [i for i, r in enumerate(releases) if isinstance(r, NetworkReleaseTable) and r.alone]


def _tasks(plan: Plan, index: int, attack: int) -> list[NetworkTask]:
    batch = plan.config.setting[index].batch
    assert batch is not None
    count = plan.config.audit.authenticity
    own = [NetworkTask(index, attack, True, number) for number in range(count)]
    releases = range(plan.planned(index) // batch)
    return own + [NetworkTask(index, attack, False, number) for number in releases]


def _left(plan: Plan, log: Store, index: int, attack: int) -> list[NetworkTask]:
    kept = frozenset(log.artefacts())
    return [task for task in _tasks(plan, index, attack) if task.artefact not in kept]


def _chosen(plan: Plan, log: Store) -> dict[int, int | str]:
    """Return for each judged setting the attack's place in the plan, or why none is judged."""
    return {index: _strongest(plan, log, index) for index in _judged_settings(plan)}


def _strongest(plan: Plan, log: Store, index: int) -> int | str:
    name, setting = plan.config.setting[index].name, plan.setting(index)
    shadows = 0 if setting.shadow_targets is None else len(setting.shadow_targets)
    if shadows < 2 * setting.records:
        return (
            f"the adversary has {shadows} records of its own, and a judge needs "
            f"{2 * setting.records}: one half for training networks, the other to compare with"
        )
    rows = attack_rows(name, [one for one in log.outcomes() if one.trial.setting == name])
    # Without the truth no success is known: then the first attack that ran.
    ran = by_success(rows) or [row for row in rows if row.ran and not row.baseline]
    if not ran:
        return "no attack really ran"
    attacks = plan.attacks_on(Unit(index, (0,)))
    return plan.attacks.index(next(a for a in attacks if a.name == ran[0].attack))


@dataclass(frozen=True)
class Judging(Expense):
    """The networks that one setting's candidates are judged by."""

    def label(self, plan: Plan) -> str:
        """Return what it is."""
        return "(is it real?)"

    def planned(self, plan: Plan) -> int:
        """Return how many networks there are."""
        return len(_tasks(plan, self.setting, 0))

    def left(self, estimate: Estimate) -> int:
        """Return how many of them are not kept yet."""
        names, start = estimate.done.artefacts, artefacts_of(self.setting)
        return max(0, self.planned(estimate.plan) - sum(name.startswith(start) for name in names))

    def cost(self, estimate: Estimate) -> Cost:
        """Return what a network costs: its training, and two runs of the dearest attack."""
        plan = estimate.plan
        attacks = [
            cost.each
            for one, cost in estimate.costs.items()
            if isinstance(one, AttackTrials)
            and one.setting == self.setting
            and not plan.attacks[one.attack].baseline
        ]
        release = estimate.costs[Preparation(self.setting)].each
        batch = plan.config.setting[self.setting].batch or 1
        return Cost(0.0, batch * (release + 2 * max(attacks, default=0.0)), 1)
