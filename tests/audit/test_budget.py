"""Fitting a plan into a time, with costs made up so that every answer can be worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.audit import small

from exhume.audit import Plan
from exhume.audit.budget import Budget, fitted, spelled
from exhume.audit.costs import Estimate
from exhume.audit.stages.attack import AttackTrials
from exhume.audit.stages.expense import Cost, Expense, FinishedWork
from exhume.audit.stages.measure import Preparation
from exhume.protocol.errors import InputError

FEW = small.SCALED.replace('name = "scaled"', 'name = "scaled"\ntargets = 10')
GRADIENTS = """
[[setting]]
name = "gradients"
data = { name = "fashion-mnist-small" }
release = { kind = "gradient", model = "convnet", width = 16, batch_size = 4 }
attacks = ["first-layer"]
"""


def plan() -> Plan:
    """40 targets of one setting, 10 of another, 40 in batches of 4 of the third."""
    return small.plan(small.PLAIN, FEW, GRADIENTS, small.audit(40, attacks='["glm"]'))


def estimate(*, each: float = 1.0, once: float = 0.0, workers: int = 1) -> Estimate:
    """Every attack takes as long on every setting; the blind guess nothing, nor does the rest."""
    of = plan()
    costs: dict[Expense, Cost] = {Preparation(index): Cost(0.0, 0.0, 1) for index in range(3)}
    names = [attack.name for attack in of.attacks]
    for index, attack in ((0, "glm"), (1, "glm"), (2, "first-layer")):
        costs[AttackTrials(index, names.index(attack))] = Cost(once, each, 2)
        costs[AttackTrials(index, names.index("oblivious"))] = Cost(0.0, 0.0, 2)
    return Estimate(of, costs, workers=workers)


def test_the_time_of_a_whole_plan() -> None:
    assert estimate().total() == 90.0
    assert estimate(once=5.0).total() == 105.0
    assert estimate(workers=3).total() == 30.0
    # Sixteen targets are one unit, which can't be shared.
    assert estimate(workers=90).total() == 16.0


def test_preparation_is_not_shared() -> None:
    one = estimate(workers=2)
    costs = {**one.costs, Preparation(0): Cost(30.0, 0.5, 1)}
    assert replace(one, costs=costs).total() == 30.0 + (90.0 + 40 * 0.5) / 2


def test_half_the_time_is_half_of_every_setting() -> None:
    chosen = fitted(estimate(), Budget("45s"))
    assert chosen.limits == (20, 5, 20)
    assert chosen.budget == "45s"
    assert sum(len(unit.targets) for unit in chosen.units()) == 45
    assert chosen.identity == plan().identity


def test_batches_stay_whole() -> None:
    chosen = fitted(estimate(), Budget("30s"))
    assert chosen.limits == (15, 3, 12)


def test_what_fits_is_left_alone() -> None:
    assert fitted(estimate(), Budget("90s")).limits == (40, 10, 40)


def test_time_spent_already_counts() -> None:
    assert fitted(estimate(), Budget("90s"), spent=45.0).limits == (20, 5, 20)


def test_the_trials_are_those_of_the_whole_plan() -> None:
    """So that a later run without a budget has only the rest to do."""
    chosen = fitted(estimate(), Budget("45s"))
    assert small.expected_keys(chosen) < small.expected_keys(plan())


def test_what_is_done_stays_in() -> None:
    whole = plan()
    done = whole.keys(whole.units()[0]) | whole.keys(whole.units()[1])
    chosen = fitted(replace(estimate(), done=FinishedWork(done)), Budget("20s"))
    # 32 targets of the first setting cost nothing more; of the others 20 s are a good 43 %.
    assert chosen.limits[0] >= 32
    assert chosen.limits[1:] == (4, 16)


def test_too_small_a_budget_says_what_it_would_take() -> None:
    with pytest.raises(InputError) as caught:
        fitted(estimate(once=10.0), Budget("35s"))
    assert str(caught.value) == (
        "a budget of 35s is too small: one release of every setting takes about 36 s, of which "
        "14 s go to first-layer on setting 'gradients'; give more time, or leave that out"
    )
    with pytest.raises(InputError, match="its calibration took 50 s"):
        fitted(estimate(), Budget("40s"), spent=50.0)


@given(seconds=st.floats(6.0, 100.0), workers=st.integers(1, 8))
def test_a_fitted_plan_fits_and_a_larger_share_does_not(seconds: float, workers: int) -> None:
    one = estimate(workers=workers)
    text = f"{seconds:.6f}s"
    chosen = fitted(one, Budget(text))
    assert replace(one, plan=chosen).total() <= Budget(text).seconds
    more = tuple(min(n + 4, of) for n, of in zip(chosen.limits, (40, 10, 40), strict=True))
    if more != chosen.limits:
        assert replace(one, plan=replace(chosen, limits=more)).total() > seconds - 1e-3


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30m", 1800),
        ("1h30m", 5400),
        ("90s", 90),
        ("1.5h", 5400),
        ("2d", 172800),
        (" 1H 5 s", 3605),
    ],
)
def test_times(text: str, seconds: float) -> None:
    assert Budget(text).seconds == seconds


@pytest.mark.parametrize("text", ["", "30", "m", "-5m", "0s", "5 minutes", "1e3s", "30m?", "nan"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(InputError, match="a budget is a time such as 90s, 30m"):
        Budget(text)


def test_times_in_words() -> None:
    assert [spelled(s) for s in (0.0, 9.99, 59.4, 60.0, 3599.6, 7200.0, 90061.0)] == [
        *("0 s", "10 s", "59 s", "1 min", "1 h", "2 h", "1 d 1 h")
    ]
