"""Shadow models, trained by all workers together before the attacks that learn from them run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from exhume.audit.executors import Executor
from exhume.audit.plan import Plan, Unit
from exhume.audit.threads import one_thread
from exhume.errors import InputError

if TYPE_CHECKING:
    from exhume.shadows import Order


def train_shadows(
    plan: Plan, units: Sequence[Unit], done: frozenset[str], executor: Executor
) -> None:
    """Train and keep what the units' attacks will ask for, if workers can find it afterwards.

    One unit would train all of them alone; this way every worker has its share.
    """
    from exhume.shadows import train_ahead, user_cache

    cache = user_cache()
    if cache.folder is None or not executor.shares_files:
        return
    first = {unit.setting: unit for unit in reversed(units)}
    orders: list[Order] = []
    for unit in first.values():
        orders += [order for order in _orders(plan, unit, done) if order not in orders]
    for order in orders:
        try:
            train_ahead(order, cache, executor)
        except InputError:
            # The attack itself will say what is wrong with the training.
            continue


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
