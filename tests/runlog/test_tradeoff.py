"""Strength, utility loss, front and winner, from points whose answer is known."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.runlog.compared import by_name, fact, records

from exhume.runlog.tradeoff import Measure, Tradeoff, pareto_front, tradeoffs
from exhume.stats.means import mean_interval

FLAT = [0.10, 0.11, 0.09, 0.10, 0.12, 0.08, 0.10, 0.10]
"""Errors of eight batches with mean 0.1."""


def shifted(by: float) -> list[float | None]:
    return [value + by for value in FLAT]


def losses(at: float) -> list[float]:
    return [at - 0.001, at, at + 0.001]


def on(found: tuple[Tradeoff, ...], measure: Measure) -> Tradeoff:
    return next(one for one in found if one.metric == "rmse" and one.measure == measure.value)


def example(measure: Measure = Measure.ACCURACY) -> Tradeoff:
    """Four defences: "weak" and "strong" are on the front, "useless" and "worse" are not."""
    facts = by_name(
        fact("", losses=losses(0.3)),
        fact("weak", losses=losses(0.32)),
        fact("useless", losses=losses(0.35)),
        fact("strong", losses=losses(0.39)),
        fact("worse", losses=losses(0.6)),
    )
    errors = {
        "": {"geiping": shifted(0.0), "dlg": shifted(0.05)},
        "weak": {"geiping": shifted(0.12), "dlg": shifted(0.06)},
        "useless": {"geiping": shifted(0.01), "dlg": shifted(0.02)},
        "strong": {"geiping": shifted(0.15), "dlg": shifted(0.18)},
        "worse": {"geiping": shifted(0.14), "dlg": shifted(0.2)},
    }
    return on(tradeoffs(facts, records(errors)), measure)


def test_the_strongest_attack_is_the_one_that_is_best_on_average() -> None:
    weak = example().points[1]
    assert weak.strength.attack == "dlg"
    assert weak.strength.mean == pytest.approx(0.16)
    assert weak.strength.by_attack == pytest.approx(
        {"geiping": 0.22, "dlg": 0.16, "oblivious": 0.3}
    )


def test_no_target_has_its_attack_picked_for_it() -> None:
    turns: dict[str, list[float | None]] = {"a": [0.1, 0.3] * 4, "b": [0.25, 0.13] * 4}
    facts = by_name(fact(""), fact("x"))
    (found,) = tradeoffs(facts, records({"": turns, "x": turns}, blind=0.5))
    assert found.points[0].strength.mean == pytest.approx(0.19)


def test_a_blind_guess_is_an_attack_that_everybody_has() -> None:
    facts = by_name(fact(""), fact("x"))
    errors = {"": {"a": shifted(0.0)}, "x": {"a": shifted(0.6)}}
    (found,) = tradeoffs(facts, records(errors))
    strength = found.points[1].strength
    assert (strength.mean, strength.attack, strength.blind) == (
        pytest.approx(0.3),
        "oblivious",
        True,
    )
    assert found.blind == pytest.approx(0.3)


def test_where_an_attack_finds_nothing_it_guesses() -> None:
    facts = by_name(fact(""), fact("x"))
    errors = {"": {"a": shifted(0.0)}, "x": {"a": [0.1, None, 0.1, None]}}
    (found,) = tradeoffs(facts, records(errors))
    assert found.points[1].strength.by_attack["a"] == pytest.approx(0.2)
    (without,) = tradeoffs(
        by_name(fact(""), fact("y"), fact("x")),
        records({"": {"a": shifted(0.0)}, "y": {"a": shifted(0.0)}, "x": errors["x"]}, blind=None),
    )
    assert [p.defence for p in without.points] == ["", "y"]


def test_batches_are_resampled_whole() -> None:
    """Two records of a batch tell no more than one where they have the same error."""
    twice = [value for value in FLAT for _ in range(2)]
    facts = by_name(fact("", batch=2), fact("x", batch=2))
    (paired,) = tradeoffs(facts, records({"": {"a": twice}, "x": {"a": twice}}))
    facts = by_name(fact(""), fact("x"))
    (single,) = tradeoffs(facts, records({"": {"a": FLAT}, "x": {"a": FLAT}}))
    assert paired.batches == single.batches == 8
    assert paired.points[0].strength == single.points[0].strength


def test_utility_loss_is_against_the_same_seed() -> None:
    """Seeds that differ by far more than the defence costs don't widen its interval."""
    facts = by_name(
        fact("", losses=[0.1, 0.5, 0.9]),
        fact("x", losses=[0.11, 0.51, 0.912]),
        fact("y", losses=[0.1]),
    )
    errors = {name: {"a": shifted(0.0)} for name in ("", "x", "y")}
    x, y = on(tradeoffs(facts, records(errors)), Measure.TRAINING_LOSS).points[1:]
    assert x.utility is not None
    assert y.utility is not None
    expected = mean_interval([0.01, 0.01, 0.012])
    assert (x.utility.mean, x.utility.low) == pytest.approx((expected.estimate, expected.low))
    assert x.utility.value == pytest.approx(np.mean([0.11, 0.51, 0.912]))
    assert (y.utility.mean, y.utility.low) == (0.0, None)


@pytest.mark.parametrize("measure", list(Measure))
def test_the_front_of_a_known_example(measure: Measure) -> None:
    found = example(measure)
    assert [p.on_front for p in found.points] == [True, True, False, True, False]
    assert [p.front_probability for p in found.points] == pytest.approx([1, 1, 0, 1, 0], abs=0.02)


def test_the_winners_of_a_known_example() -> None:
    """At 1 % only nothing is affordable, at 5 % the weak defence, at 10 % the strong one."""
    found = example()
    assert [w.defence for w in found.winners] == ["", "weak", "strong"]
    assert all(w.told and w.contenders[0].probability > 0.95 for w in found.winners)
    assert (
        found.describe()[1] == "grid, at a loss of at most 5 points of accuracy: weak protects best"
    )


def test_two_within_noise_cannot_be_told_apart() -> None:
    facts = by_name(
        fact("", losses=losses(0.3)), fact("x", losses=losses(0.31)), fact("y", losses=losses(0.31))
    )
    shuffled = [FLAT[i] + 0.1 for i in (3, 1, 4, 0, 6, 2, 5, 7)]
    errors = {"": {"a": shifted(0.0)}, "x": {"a": shifted(0.1)}, "y": {"a": shuffled}}
    winner = on(tradeoffs(facts, records(errors)), Measure.ACCURACY).winners[1]
    assert not winner.told
    assert winner.defence is None
    assert {c.defence for c in winner.contenders} == {"x", "y"}
    assert sum(c.probability for c in winner.contenders) == pytest.approx(1.0)
    said = on(tradeoffs(facts, records(errors)), Measure.ACCURACY).describe()[1]
    assert "undecided between" in said


def test_a_cost_that_is_not_known_well_makes_a_winner_uncertain() -> None:
    facts = by_name(fact("", losses=losses(0.3)), fact("x", losses=[0.25, 0.35, 0.45]))
    errors = {"": {"a": shifted(0.0)}, "x": {"a": shifted(0.1)}}
    winner = on(tradeoffs(facts, records(errors)), Measure.ACCURACY).winners[1]
    assert not winner.told
    assert {c.defence for c in winner.contenders} == {"", "x"}


def test_of_those_that_protect_alike_the_cheapest_wins() -> None:
    """Two defences leave nothing but a blind guess: they protect alike."""
    facts = by_name(
        fact("", losses=losses(0.3)), fact("x", losses=losses(0.34)), fact("y", losses=losses(0.32))
    )
    errors = {"": {"a": shifted(0.0)}, "x": {"a": shifted(0.9)}, "y": {"a": shifted(0.5)}}
    found = on(tradeoffs(facts, records(errors)), Measure.ACCURACY)
    assert [p.on_front for p in found.points] == [True, False, True]
    assert found.winners[1].defence == "y"


def test_what_diverged_wins_nothing() -> None:
    broken = fact("x", losses=losses(0.3))
    broken["trainings"][1] = {
        "seed": 1, "training_loss": None, "test_loss": None, "accuracy": None, "diverged": True
    }  # fmt: skip
    facts = by_name(fact("", losses=losses(0.3)), broken)
    found = on(
        tradeoffs(facts, records({"": {"a": shifted(0.0)}, "x": {"a": shifted(0.1)}})),
        Measure.ACCURACY,
    )
    utility = found.points[1].utility
    assert utility is not None
    assert (utility.mean, utility.diverged) == (math.inf, 1)
    assert found.points[1].on_front is False
    assert {w.defence for w in found.winners} == {""}


def test_what_no_attack_ran_against_wins_nothing() -> None:
    """A guess stands in for attacks that did not run; that it does badly is no evidence."""
    facts = by_name(fact("", losses=losses(0.3)), fact("x", losses=losses(0.3)))
    errors = {"": {"a": shifted(0.0)}, "x": {"a": [None] * 8}}
    found = on(tradeoffs(facts, records(errors)), Measure.ACCURACY)
    assert [p.strength.answered for p in found.points] == [True, False]
    assert found.points[1].strength.mean == pytest.approx(0.3)
    assert [p.on_front for p in found.points] == [True, False]
    assert [p.front_probability for p in found.points] == [1.0, 0.0]
    assert {w.defence for w in found.winners} == {""}
    nothing = {name: {"a": [None] * 8} for name in ("", "x")}
    silent = on(tradeoffs(facts, records(nothing)), Measure.ACCURACY)
    assert {w.defence for w in silent.winners} == {None}
    assert "no attack really ran" in silent.describe()[0]


def test_without_trainings_there_are_strengths_alone() -> None:
    facts = by_name(fact(""), fact("x", losses=losses(0.3)))
    (found,) = tradeoffs(facts, records({"": {"a": FLAT}, "x": {"a": FLAT}}))
    assert (found.measure, found.winners) == ("", ())
    assert all(p.utility is None and p.on_front is None for p in found.points)


def test_settings_of_no_grid_are_not_compared() -> None:
    alone = {**fact(""), "group": ""}
    assert tradeoffs(by_name(alone), records({"": {"a": FLAT}})) == ()
    assert tradeoffs(by_name(fact("")), records({"": {"a": FLAT}})) == ()


def test_bounds_stand_beside_the_error_they_are_about() -> None:
    facts = by_name(
        fact(""), fact("x", floor=0.05, floor_binds="unbiased attacks only", liu_rate=2.0)
    )
    (found,) = tradeoffs(facts, records({"": {"a": FLAT}, "x": {"a": FLAT}}))
    point = found.points[1]
    assert (point.floor, point.floor_binds, point.rate) == (0.05, "unbiased attacks only", 2.0)


def test_it_is_plain_data() -> None:
    from dataclasses import asdict

    assert json.loads(json.dumps(asdict(example())))["points"][1]["defence"] == "weak"


NUMBERS = st.floats(-5, 5).map(lambda v: round(v, 1))


@settings(max_examples=60)
@given(arrays(float, (2, 7), elements=NUMBERS))
def test_the_front_is_what_nothing_dominates(points: np.ndarray) -> None:
    losses, strengths = points
    front = pareto_front(losses[:, None], strengths[:, None])[:, 0]
    assert front.any()
    for i in range(7):
        dominated = any(
            losses[j] <= losses[i]
            and strengths[j] >= strengths[i]
            and (losses[j], strengths[j]) != (losses[i], strengths[i])
            for j in range(7)
        )
        assert front[i] == (not dominated)


@pytest.mark.parametrize("count", [8, 30])
def test_intervals_of_strength_hold_what_they_say(count: int) -> None:
    """95 % intervals miss the truth about one time in twenty; half of one would be noticed."""
    rng = np.random.default_rng(5)
    held = narrow = 0
    trials = 200
    for _ in range(trials):
        drawn = rng.normal(0.2, 0.03, count).tolist()
        facts = by_name(fact(""), fact("x"))
        (found,) = tradeoffs(facts, records({"": {"a": drawn}, "x": {"a": FLAT * 4}}, blind=0.9))
        strength = found.points[0].strength
        assert strength.low is not None
        assert strength.high is not None
        held += strength.low <= 0.2 <= strength.high
        narrow += abs(strength.mean - 0.2) <= (strength.high - strength.low) / 4
    # Binomial(200, 0.95) is above 180 and Binomial(200, 0.67) below 160, each but 1 in 500 times.
    assert held > 180
    assert narrow < 160
