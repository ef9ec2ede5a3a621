"""What audits with thousands of shadow models will cost, without training them."""

from __future__ import annotations

import math

import pytest
from tests.audit import small

from exhume.attacks.informed.learned import Ridge
from exhume.audit.costs import Estimate, costs_of, expenses
from exhume.audit.stages import large_shadow_sets
from exhume.audit.stages.attack import AttackTrials
from exhume.audit.stages.expense import Cost, FinishedWork
from exhume.audit.stages.large_shadow_sets import LargeShadowSet, large_orders
from exhume.protocol.records import Records
from exhume.shadows import filled, first_order, shadows_of, user_cache
from exhume.shadows.first_order import LinearisedModels, arithmetic, maker_for
from exhume.shadows.maker import Repeated

pytestmark = pytest.mark.slow

NETWORK = """
[[setting]]
name = "network"
data = { name = "digits", fixed_set = 300, shadow_targets = 120 }
release = { model = "mlp", hidden = [6], activation = "elu" }
knowledge = { training = { learning_rate = 0.05, momentum = 0.9, epochs = 5 } }
"""


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """As if 40 shadow models were many; the numbers that are trained at a time."""
    monkeypatch.setattr(large_shadow_sets, "LARGE", 40)
    monkeypatch.setattr(large_shadow_sets, "_FEW", 10)
    counts: list[int] = []
    real = Repeated.rows

    def counted(self: Repeated, targets: Records, name: str):  # type: ignore[no-untyped-def]
        counts.append(len(targets))
        return real(self, targets, name)

    monkeypatch.setattr(Repeated, "rows", counted)
    shadows_of.cache_clear()
    return counts


def planned():  # type: ignore[no-untyped-def]
    return small.plan(NETWORK, small.audit(3, attacks='["ridge"]'))


def test_a_few_are_trained_and_the_others_counted(trained: list[int]) -> None:
    plan = planned()
    (models,) = (one for one in expenses(plan) if isinstance(one, LargeShadowSet))
    assert (models.label(plan), models.planned(plan)) == ("(shadow models)", 120)
    cost = models.tried(plan)
    assert trained == [10]
    assert (cost.once, cost.units) == (0.0, 10)
    estimate = Estimate(plan, {models: Cost(1.0, 2.0, 10)})
    assert models.seconds(estimate) == 1.0 + 120 * 2.0
    (order,) = large_orders(plan, 0)
    filled(order, user_cache())
    assert models.left(estimate) == 0


def test_the_attack_is_tried_on_few_and_its_memory_is_stated(trained: list[int]) -> None:
    plan = planned()
    (trials,) = (
        one
        for one in expenses(plan)
        if isinstance(one, AttackTrials) and one.label(plan) == "ridge"
    )
    cost = trials.tried(plan)
    assert sum(trained) <= 20
    (order,) = large_orders(plan, 0)
    bound = Ridge().memory(order)
    assert bound == 16 * 120**2 + 16 * 1024 * order.layout.whole + 20 * 120 * 64
    assert cost.memory > bound


def test_to_first_order_arithmetic_tells_the_cost(
    trained: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_order, "WORTH", 0.0)
    monkeypatch.setattr(first_order, "MOST_OFF", math.inf)
    plan = planned()
    (order,) = large_orders(plan, 0)
    assert isinstance(maker_for(order, user_cache()), LinearisedModels)
    cost = LargeShadowSet(0).tried(plan)
    exact, hessians, each = arithmetic(order)
    assert cost.once / cost.each == pytest.approx(hessians / each)
    assert exact == 4.0 * 300 * 6 * 65


def test_small_sets_are_tried_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned()
    assert not any(isinstance(one, LargeShadowSet) for one in expenses(plan))
    costs = costs_of(plan, FinishedWork(), lambda done, total: None)
    assert all(cost.memory > 0 for one, cost in costs.items() if isinstance(one, AttackTrials))
