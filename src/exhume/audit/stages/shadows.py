"""Shadow models, trained by all workers together before the attacks that learn from them run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from exhume.audit.plan import Plan, Unit
from exhume.audit.stages.attack import units_left
from exhume.audit.stages.base import Job, Stage
from exhume.audit.stages.expense import Expense
from exhume.audit.stages.large_shadow_sets import LargeShadowSet, large_orders
from exhume.protocol.arrays import Array
from exhume.runlog.store import Store
from exhume.runtime import Executor
from exhume.runtime.threads import one_thread

if TYPE_CHECKING:
    from exhume.shadows import Chunk, Order


class TrainShadows(Stage):
    """Trains what the attacks will ask the cache for; a task is a chunk of shadow models.

    One unit would train all of them alone; this way every worker has its share.
    """

    doing: ClassVar[str] = "shadow models"

    def workers(self, executor: Executor) -> Executor | None:
        """Leave the stage out where workers would not find each other's shadow models."""
        return executor if executor.shares_files else None

    def expenses(self, plan: Plan) -> Sequence[Expense]:
        """Return the models of settings that have thousands of them."""
        settings = range(len(plan.config.setting))
        return [LargeShadowSet(index) for index in settings if any(large_orders(plan, index))]

    def jobs(self, plan: Plan, log: Store) -> Iterable[Job[Order, Chunk, Array | None]]:
        """Train the chunks that the cache does not hold, of attacks that are not done."""
        from exhume.shadows import chunks_left, keep_chunk, train_chunk, user_cache

        cache, done = user_cache(), frozenset(log.keys())
        first = {unit.setting: unit for unit in reversed(units_left(plan, done))}
        orders: list[Order] = []
        for unit in first.values() if cache.folder is not None else ():
            orders += [order for order in _orders(plan, unit, done) if order not in orders]

        def keep(chunk: Chunk, rows: Array | None) -> int:
            keep_chunk(cache, chunk, rows)
            return 0

        for order in orders:
            yield Job(
                train_chunk, order, chunks_left(order, cache), keep, lambda _: "shadow models"
            )


def _orders(plan: Plan, unit: Unit, done: frozenset[str]) -> list[Order]:
    """Return what the attacks of a unit that aren't done learn from."""
    from exhume.shadows import OrdersShadows

    attacks = [
        attack
        for attack in plan.attacks_on(unit)
        if isinstance(attack, OrdersShadows)
        and any(trial.key not in done for trial in plan.trials(unit, attack))
    ]
    if not attacks:
        return []
    with one_thread():
        setting = plan.setting(unit.setting)
        (group, *_) = setting.groups(unit.targets)
        (release,) = setting.releases([group], plan.config.audit.seed)
        found = [attack.order(release, setting.knowledge(*group)) for attack in attacks]
    return [order for order in found if not isinstance(order, str)]
