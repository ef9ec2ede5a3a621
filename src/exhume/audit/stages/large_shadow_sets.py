"""What large sets of shadow models cost: a few models are trained, the rest follows from them.

Trying an attack that learns from tens of thousands of models would train them all.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from exhume.audit.plan import Plan, Unit
from exhume.audit.stages.expense import Cost, FinishedWork, TriedExpense, peak_memory
from exhume.protocol.attack import Attack
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.release import Release

if TYPE_CHECKING:
    from exhume.audit.costs import Estimate
    from exhume.shadows import Order

LARGE = 4096
"""Attacks on more shadow models are tried on a few, and the rest is worked out."""
_FEW = 64


@dataclass(frozen=True)
class LargeShadowSet(TriedExpense):
    """The shadow models of a setting, which its attacks share."""

    def label(self, plan: Plan) -> str:
        """Return what they are."""
        return "(shadow models)"

    def planned(self, plan: Plan) -> int:
        """Return how many there are."""
        return max(len(order.targets) for order in large_orders(plan, self.setting))

    def left(self, estimate: Estimate) -> int:
        """Return how many the cache does not hold, until every trial is done."""
        from exhume.audit.stages.attack import units_left
        from exhume.shadows import chunks_left, user_cache

        plan = estimate.plan
        if not any(u.setting == self.setting for u in units_left(plan, estimate.done.keys)):
            return 0
        orders = list(large_orders(plan, self.setting))
        if user_cache().folder is None:
            return self.planned(plan)
        chunks = {one.name: one for order in orders for one in chunks_left(order, user_cache())}
        return sum(len(one.targets) for one in chunks.values())

    def longest(self, estimate: Estimate) -> float:
        """Return what one chunk takes."""
        from exhume.shadows.first_order import MODELS

        cost, left = self.cost(estimate), self.left(estimate)
        return min(left, MODELS) * cost.each

    def stored(self, plan: Plan, done: FinishedWork) -> Cost | None:
        """Return nothing: no run says how long one model took."""
        return None

    def tried(self, plan: Plan) -> Cost:
        """Train a few models exactly; to first order, arithmetic tells what the others take."""
        from exhume.shadows import user_cache
        from exhume.shadows.first_order import LinearisedModels, arithmetic, maker_for
        from exhume.shadows.maker import Repeated

        (order, *_) = large_orders(plan, self.setting)
        maker = maker_for(order, user_cache())
        exact = Repeated(order) if isinstance(maker, LinearisedModels) else maker
        exact.base()
        started = time.perf_counter()
        exact.rows(order.targets.take(slice(_FEW)), "")
        each = (time.perf_counter() - started) / _FEW
        if not isinstance(maker, LinearisedModels):
            return Cost(0.0, each, _FEW, peak_memory())
        one, hessians, another = arithmetic(order)
        return Cost(each * hessians / one, each * another / one, _FEW, peak_memory())


def large_orders(plan: Plan, index: int) -> Iterable[Order]:
    """Yield the orders of large sets of shadow models on a setting, one per attack."""
    from exhume.audit.stages.attack import first_groups, published

    unit = Unit(index, (0,))
    learning = [one for one in plan.attacks_on(unit) if getattr(one, "shadows", 0) > LARGE]
    found = plan.setting(index).shadow_targets
    if not learning or found is None or len(found) <= LARGE:
        return
    (group, *_) = first_groups(plan, index)
    (release,) = published(plan, index, group)
    for attack in learning:
        order = _order(attack, release, plan.setting(index).knowledge(*group))
        if order is not None and len(order.targets) > LARGE:
            yield order


def on_few(attack: Attack, release: Release, knowledge: Knowledge) -> tuple[Attack, int, int]:
    """Return an attack that is quick to try: on few shadow models where it wants many.

    Beside it, how many times as many it wants (1 where it is the attack itself), and the bytes that
    it will take then.
    """
    order = _order(attack, release, knowledge) if getattr(attack, "shadows", 0) > LARGE else None
    if order is None or len(order.targets) <= LARGE:
        return attack, 1, 0
    from exhume.shadows import shadows_of

    small = cast(Any, replace(cast(Any, attack), shadows=_FEW))
    shadows_of(small.order(release, knowledge))
    return small, len(order.targets) // _FEW, cast(Any, attack).memory(order)


def _order(attack: Attack, release: Release, knowledge: Knowledge) -> Order | None:
    from exhume.shadows import OrdersShadows

    found = attack.order(release, knowledge) if isinstance(attack, OrdersShadows) else ""
    return None if isinstance(found, str) else found
