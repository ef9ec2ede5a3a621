"""Verdicts follow from figures: right ones are confirmed, wrong ones aren't, small ones neither."""

from __future__ import annotations

import pytest
from tests.studies.summaries import made

from exhume.studies import Claim, Kind, Needs, Reading
from exhume.studies.run import shown

MSE, ORACLE = Reading("mse.mean", "a"), Reading("oracle", "a")
BELOW = Claim(MSE, "below", ORACLE)


@pytest.mark.parametrize(
    ("relation", "error", "factor", "kind"),
    [
        ("below", 0.09, 1.0, Kind.CONFIRMED),
        ("below", 0.11, 1.0, Kind.NOT_CONFIRMED),
        ("below", 0.11, 1.2, Kind.CONFIRMED),
        ("below", 0.09, 0.5, Kind.NOT_CONFIRMED),
        ("above", 0.11, 1.0, Kind.CONFIRMED),
        ("above", 0.09, 1.0, Kind.NOT_CONFIRMED),
        ("above", 0.09, 1.2, Kind.CONFIRMED),
        ("about", 0.14, 1.5, Kind.CONFIRMED),
        ("about", 0.07, 1.5, Kind.CONFIRMED),
        ("about", 0.16, 1.5, Kind.NOT_CONFIRMED),
        ("about", 0.06, 1.5, Kind.NOT_CONFIRMED),
    ],
)
def test_relations(relation, error, factor, kind):
    run = made(a={"oracle": 0.1, "reconstructor": error})
    assert Claim(MSE, relation, ORACLE, factor=factor).judge(run).kind is kind


def test_another_attack_may_bear_it_out_and_that_is_said():
    run = made(a={"oracle": 0.1, "reconstructor": 0.2, "ridge": 0.05})
    verdict = BELOW.judge(run)
    assert verdict.kind is Kind.CONFIRMED
    assert verdict.reason.startswith("by ridge, not by reconstructor")
    assert ".0500 < .100" in verdict.reason


def test_every_attack_must_where_the_paper_says_that_it_fails():
    claim = Claim(MSE, "above", ORACLE, every=True)
    run = made(a={"oracle": 0.1, "reconstructor": 0.2, "ridge": 0.05})
    verdict = claim.judge(run)
    assert verdict.kind is Kind.NOT_CONFIRMED
    assert verdict.reason.startswith("ridge: ")
    assert claim.judge(made(a={"oracle": 0.1, "reconstructor": 0.2})).kind is Kind.CONFIRMED


@pytest.mark.parametrize(("least", "kind"), [(100, Kind.NOT_CONFIRMED), (101, Kind.NOT_TESTABLE)])
def test_failing_says_nothing_below_the_size_that_is_needed(least, kind):
    run = made(a={"oracle": 0.1, "reconstructor": 0.2})
    claim = Claim(MSE, "below", ORACLE, needs=Needs("shadow_targets", least, "so few"))
    assert claim.judge(run).kind is kind


def test_what_holds_is_confirmed_at_any_size():
    run = made(a={"oracle": 0.1, "reconstructor": 0.05})
    claim = Claim(MSE, "below", ORACLE, needs=Needs("shadow_targets", 1e6, "so few"))
    assert claim.judge(run).kind is Kind.CONFIRMED


@pytest.mark.parametrize(
    ("phi", "ridge", "kind"),
    [
        (0.2, 0.2, Kind.CONFIRMED),
        (0.2, 0.101, Kind.NOT_TESTABLE),
        (0.099, 0.2, Kind.NOT_TESTABLE),
        (0.2, 0.05, Kind.NOT_CONFIRMED),
        (0.099, 0.05, Kind.NOT_CONFIRMED),
    ],
)
def test_figures_may_be_too_close_to_call(phi, ridge, kind):
    claim = Claim(MSE, "above", ORACLE, every=True)
    run = made(spread=0.005, a={"oracle": 0.1, "reconstructor": phi, "ridge": ridge})
    assert claim.judge(run).kind is kind
    assert claim.leans(run) is (min(phi, ridge) > 0.1)


@pytest.mark.parametrize(
    ("error", "kind"),
    [(0.11, Kind.CONFIRMED), (0.145, Kind.NOT_TESTABLE), (0.2, Kind.NOT_CONFIRMED)],
)
def test_about_the_same_must_be_sure_too(error, kind):
    claim = Claim(MSE, "about", ORACLE, factor=1.5)
    run = made(spread=0.005, a={"oracle": 0.1, "reconstructor": error})
    assert claim.judge(run).kind is kind


def test_the_reason_says_how_far_the_difference_may_be_off():
    run = made(spread=0.005, a={"oracle": 0.1, "reconstructor": 0.2})
    # Differences of -20, 10, 0, -10, 20 thousandths: a standard error of .00707, times 2.776.
    assert BELOW.judge(run).reason == ".200 ≥ .100; ± .0196"


def test_one_batch_tells_nothing_of_others():
    run = made(spread=0.001, batch=5, a={"oracle": 0.1, "reconstructor": 0.01})
    verdict = BELOW.judge(run)
    assert verdict.kind is Kind.NOT_TESTABLE
    assert verdict.reason.startswith("one batch tells nothing of others")
    assert BELOW.leans(run)


def test_an_attack_that_did_not_run_is_no_evidence():
    run = made(a={"oracle": 0.1, "reconstructor": None})
    verdict = BELOW.judge(run)
    assert verdict.kind is Kind.NOT_TESTABLE
    assert verdict.reason == "not part of this run"


def test_two_settings_are_compared_under_the_same_attack():
    run = made(
        a={"oracle": 0.1, "reconstructor": 0.03, "ridge": 0.02},
        b={"oracle": 0.1, "reconstructor": 0.04, "ridge": 0.01},
    )
    claim = Claim(MSE, "below", Reading("mse.mean", "b"))
    assert claim.judge(run).reason == ".0300 < .0400"
    assert Claim(MSE, "below", Reading("mse.mean", "b"), every=True).judge(run).kind is (
        Kind.NOT_CONFIRMED
    )


@pytest.mark.parametrize(
    ("quantity", "value"),
    [
        ("mse.mean", 0.3),
        ("success", 0.4),
        ("seconds", 2.0),
        ("mse~lpips", 0.7),
        ("lpips~mse", 0.7),
        ("oracle", 0.1),
        ("percentile-1", 0.5),
        ("pool", 110.0),
        ("utility", 0.9),
        ("ceiling", 0.6),
        ("blind", 0.8),
        ("nonsense", None),
        ("kappa", None),
    ],
)
def test_readings(quantity, value):
    run = made(
        a={"oracle": 0.1, "reconstructor": 0.3, "oblivious": 0.8, "utility": 0.9, "ceiling": 0.6}
    )
    assert run.read(Reading(quantity, "a"), "reconstructor") == value


def test_figures_as_papers_print_them():
    assert [shown(x) for x in (0.0412, 0.5, 1.234, 3e-10, 2.0, 12345.6, -0.25)] == [
        *(".0412", ".500", "1.23", "3.0e-10", "2", "12,346", "-.250")
    ]
    assert shown(float("inf")) == "∞"


@pytest.mark.parametrize(("times", "kind"), [(3.0, Kind.CONFIRMED), (1.0, Kind.NOT_CONFIRMED)])
def test_a_law_says_how_many_times_as_large(times, kind):
    run = made(a={"oracle": 0.1, "reconstructor": 0.31})
    assert Claim(MSE, "about", ORACLE, factor=1.1, times=times).judge(run).kind is kind


@pytest.mark.parametrize(
    ("low", "high", "kind"),
    [
        (0.2, 0.45, Kind.CONFIRMED),
        (0.3, 0.8, Kind.NOT_TESTABLE),
        (0.6, 0.9, Kind.NOT_CONFIRMED),
    ],
)
def test_an_area_is_judged_by_the_interval_beside_it(low, high, kind):
    run = made(a={"oracle": 0.1})
    curve = {"area": (low + high) / 2, "low": low, "high": high}
    run.summary["settings"][0]["authenticity"] = {"measured": curve}
    claim = Claim(Reading("authenticity.measured.area", "a"), "below", 0.5, attacks=("",))
    assert claim.judge(run).kind is kind


@pytest.mark.parametrize(("elsewhere", "kind"), [(0.05, Kind.CONFIRMED), (0.2, Kind.NOT_TESTABLE)])
def test_failing_says_nothing_of_an_attack_that_never_works(elsewhere, kind):
    run = made(
        a={"oracle": 0.1, "reconstructor": 0.2},
        b={"oracle": 0.1, "reconstructor": elsewhere},
    )
    works = Claim(Reading("mse.mean", "b"), "below", Reading("oracle", "b"))
    claim = Claim(MSE, "above", ORACLE, every=True, given=works)
    assert claim.judge(run).kind is kind
    assert claim.leans(run) is (kind is Kind.CONFIRMED)
