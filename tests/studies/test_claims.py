"""Verdicts follow from figures: right ones are confirmed, wrong ones aren't, small ones neither."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.studies.summaries import leans, made

from exhume.runlog.authenticity import Authenticity
from exhume.runlog.codec import decoded
from exhume.studies import Claim, ClaimVerdict, Kind, Needs, StudyReading
from exhume.studies.reading import STRONGEST, shown
from exhume.studies.verdicts import corrected

MSE, ORACLE = StudyReading("mse.mean", "a"), StudyReading("oracle", "a")
BELOW = Claim(MSE, "below", ORACLE)
PHI = "reconstructor"


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


def test_the_papers_method_and_the_strongest_attack_have_verdicts_of_their_own():
    run = made(a={"oracle": 0.1, "reconstructor": 0.2, "ridge": 0.05})
    assert BELOW.judge(run, PHI).kind is Kind.NOT_CONFIRMED
    assert BELOW.judge(run, STRONGEST).kind is Kind.CONFIRMED
    assert BELOW.judged_attack(run) == "ridge"
    above = Claim(MSE, "above", ORACLE)
    assert above.judge(run, PHI).kind is Kind.CONFIRMED
    assert above.judge(run, STRONGEST).kind is Kind.NOT_CONFIRMED


def test_an_attack_that_reports_no_success_has_no_verdict():
    run = made(
        statuses={"reconstructor": "NO_INFORMATION", "ridge": "CONVERGED"},
        a={"oracle": 0.1, "reconstructor": 0.05, "ridge": 0.06},
        b={"oracle": 0.1, "reconstructor": 0.2, "ridge": 0.3},
    )
    verdict = BELOW.judge(run, PHI)
    assert verdict.kind is Kind.DID_NOT_WORK
    assert verdict.reason == "no information on 5 of 5 targets"
    assert verdict.idle == ("a", "reconstructor")
    # The strongest of those that worked, though the figure of the other is smaller.
    assert BELOW.judged_attack(run) == "ridge"
    assert BELOW.judge(run).kind is Kind.CONFIRMED
    # It has to work where its error is to be small, not where it is to be large.
    worse = Claim(StudyReading("mse.mean", "b"), "above", MSE, given=BELOW)
    assert worse.judge(run, PHI).kind is Kind.DID_NOT_WORK
    assert worse.judge(run, "ridge").kind is Kind.CONFIRMED


def test_a_comparison_needs_an_attack_that_works_on_the_other_setting():
    run = made(
        a={"oracle": 0.1, "reconstructor": 0.2, "ridge": 0.05},
        b={"oracle": 0.1, "reconstructor": 0.3, "ridge": 0.06},
    )
    worse = Claim(StudyReading("mse.mean", "b"), "above", MSE, given=BELOW)
    assert worse.judge(run, PHI).kind is Kind.UNDECIDED
    assert "not shown to be" in worse.judge(run, PHI).reason
    assert worse.judge(run).kind is Kind.CONFIRMED


def test_what_the_strongest_attack_did_not_try_is_not_mitigated():
    run = made(
        a={"oracle": 0.1, "reconstructor": 0.05, "ridge": 0.01},
        b={"oracle": 0.1, "reconstructor": 0.2, "ridge": None},
    )
    there = StudyReading("mse.mean", "b")
    fails = Claim(there, "above", StudyReading("oracle", "b"), given=BELOW)
    assert fails.judge(run, PHI).kind is Kind.CONFIRMED
    verdict = fails.judge(run)
    assert verdict.kind is Kind.UNDECIDED
    assert verdict.reason == "ridge, the strongest on “a”, did not run here"


def test_records_rebuilt_up_to_rounding_are_not_ranked():
    run = made(
        spread=1e-14,
        a={"oracle": 0.1, "ridge": 1e-12},
        b={"oracle": 0.1, "ridge": 5e-12},
    )
    there = StudyReading("mse.mean", "b")
    assert Claim(there, "above", MSE).judge(run).kind is Kind.UNDECIDED
    assert Claim(there, "about", MSE).judge(run).kind is Kind.CONFIRMED
    assert Claim(MSE, "below", 1e-3).judge(run).kind is Kind.CONFIRMED


def test_one_figure_without_an_interval_decides_nothing():
    run = made(a={"utility": 0.9, "oracle": 0.1})
    claim = Claim(StudyReading("utility", "a"), "above", 0.5, attack="")
    assert claim.judge(run).kind is Kind.UNDECIDED
    assert leans(claim, run)


@pytest.mark.parametrize(
    ("decided", "open_still", "confidence"),
    [(10, 0, 0.95), (5, 5, 0.975), (0, 10, 0.995), (0, 0, 0.95)],
)
def test_the_confidence_is_corrected_for_the_number_of_claims(decided, open_still, confidence):
    """Benjamini and Hochberg's threshold, where the same claims are decided at any confidence."""
    found = [ClaimVerdict(Kind.CONFIRMED, "")] * decided
    found += [ClaimVerdict(Kind.UNDECIDED, "")] * open_still
    idle = [ClaimVerdict(Kind.DID_NOT_WORK, ""), ClaimVerdict(Kind.CONFIRMED, "", estimated=False)]
    assert corrected(lambda level: [*found, *idle]) == pytest.approx(confidence)


def test_the_correction_is_the_step_up_procedure():
    values = [0.001, 0.008, 0.012, 0.039, 0.042, 0.6]

    def verdicts(level):
        return [
            ClaimVerdict(Kind.CONFIRMED if p <= 1 - level else Kind.UNDECIDED, "") for p in values
        ]

    # By hand: p₍₃₎ = .012 ≤ 3/6 · .05, and no larger one is: three are decided.
    assert corrected(verdicts) == pytest.approx(1 - 0.05 * 3 / 6)


@pytest.mark.parametrize(("least", "kind"), [(100, Kind.NOT_CONFIRMED), (101, Kind.UNDECIDED)])
def test_failing_says_nothing_below_the_size_that_is_needed(least, kind):
    run = made(a={"oracle": 0.1, "reconstructor": 0.2})
    claim = Claim(MSE, "below", ORACLE, needs=Needs("shadow_targets", least, "so few"))
    assert claim.judge(run).kind is kind


def test_what_holds_is_confirmed_at_any_size():
    run = made(a={"oracle": 0.1, "reconstructor": 0.05})
    claim = Claim(MSE, "below", ORACLE, needs=Needs("shadow_targets", 1e6, "so few"))
    assert claim.judge(run).kind is Kind.CONFIRMED


@pytest.mark.parametrize(
    ("error", "kind"),
    [(0.2, Kind.CONFIRMED), (0.101, Kind.UNDECIDED), (0.05, Kind.NOT_CONFIRMED)],
)
def test_figures_may_be_too_close_to_call(error, kind):
    claim = Claim(MSE, "above", ORACLE)
    run = made(spread=0.005, a={"oracle": 0.1, "reconstructor": error})
    assert claim.judge(run, PHI).kind is kind
    assert leans(claim, run) is (error > 0.1)


@pytest.mark.parametrize(
    ("error", "kind"),
    [(0.11, Kind.CONFIRMED), (0.145, Kind.UNDECIDED), (0.2, Kind.NOT_CONFIRMED)],
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
    assert verdict.kind is Kind.UNDECIDED
    assert verdict.reason.endswith("one batch has no interval")
    assert leans(BELOW, run)


def test_an_attack_that_did_not_run_is_no_evidence():
    run = made(a={"oracle": 0.1, "reconstructor": None})
    verdict = BELOW.judge(run)
    assert verdict.kind is Kind.UNDECIDED
    assert verdict.reason == "not part of this run"


def test_two_settings_are_compared_under_the_same_attack():
    run = made(
        a={"oracle": 0.1, "reconstructor": 0.03, "ridge": 0.02},
        b={"oracle": 0.1, "reconstructor": 0.04, "ridge": 0.01},
    )
    claim = Claim(MSE, "below", StudyReading("mse.mean", "b"))
    assert claim.judge(run, PHI).reason.startswith(".0300 < .0400")
    assert claim.judge(run, "ridge").kind is Kind.NOT_CONFIRMED


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
    assert run.read(StudyReading(quantity, "a"), "reconstructor") == value


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
        (0.3, 0.8, Kind.UNDECIDED),
        (0.6, 0.9, Kind.NOT_CONFIRMED),
    ],
)
def test_an_area_is_judged_by_the_interval_beside_it(low, high, kind):
    run = made(a={"oracle": 0.1})
    curve = {"area": (low + high) / 2, "low": low, "high": high}
    judged = decoded(Authenticity, {"measured": curve})
    setting = replace(run.summary.settings[0], authenticity=judged)
    run = replace(run, summary=replace(run.summary, settings=(setting,)))
    claim = Claim(StudyReading("authenticity.measured.area", "a"), "below", 0.5, attack="")
    assert claim.judge(run).kind is kind


@pytest.mark.parametrize(("elsewhere", "kind"), [(0.05, Kind.CONFIRMED), (0.2, Kind.UNDECIDED)])
def test_failing_says_nothing_of_an_attack_that_never_works(elsewhere, kind):
    run = made(
        a={"oracle": 0.1, "reconstructor": 0.2},
        b={"oracle": 0.1, "reconstructor": elsewhere},
    )
    works = Claim(StudyReading("mse.mean", "b"), "below", StudyReading("oracle", "b"))
    claim = Claim(MSE, "above", ORACLE, given=works)
    assert claim.judge(run, PHI).kind is kind
