"""Lower bounds on ε: golden values, soundness by simulation, and power."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.pld import PLDAccountant

from exhume.protocol.errors import InputError
from exhume.stats.empirical_epsilon import (
    best_guesses,
    chosen_confidence,
    epsilon_from_one_run,
    epsilon_from_trials,
    epsilon_of_gaussian,
    gaussian_shift_from_one_run,
    one_run_p_value,
)


@pytest.mark.parametrize("guesses", [10, 100, 1000])
def test_all_guesses_right_have_a_closed_form(guesses: int) -> None:
    # Without δ the tail is q^r: ε ≥ logit(.05^(1/r)).
    share = 0.05 ** (1.0 / guesses)
    expected = math.log(share / (1.0 - share))
    assert epsilon_from_one_run(guesses, guesses, 2000, delta=0.0) == pytest.approx(
        expected, abs=1e-5
    )


def test_half_right_proves_nothing_and_delta_costs() -> None:
    assert epsilon_from_one_run(50, 100, 100, delta=0.0) == 0.0
    free, costly = (epsilon_from_one_run(190, 200, 1000, delta=d) for d in (0.0, 1e-4))
    assert 0.0 < costly < free


def test_the_p_value_is_the_formula_written_out() -> None:
    # Σ over the tail by hand, for r = 5, v = 4, m = 20, δ = .001, ε = 1.
    q = math.e / (1.0 + math.e)
    mass = [math.comb(5, k) * q**k * (1 - q) ** (5 - k) for k in range(6)]
    tails = [sum(mass[k:]) for k in range(6)]
    alpha = max((tails[4 - i] - tails[4]) / i for i in range(1, 5))
    expected = tails[4] + 2 * 20 * 0.001 * alpha
    assert one_run_p_value(1.0, 4, 5, 20, 0.001) == pytest.approx(expected)


@pytest.mark.parametrize("shift", [0.3, 1.0, 3.0])
def test_the_gaussian_profile_agrees_with_an_accountant(shift: float) -> None:
    exact = PLDAccountant().compose(GaussianDpEvent(1.0 / shift)).get_epsilon(1e-5)
    assert epsilon_of_gaussian(shift, 1e-5) == pytest.approx(exact, rel=2e-3)


def _run(shift: float, canaries: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    tossed = rng.random(canaries) < 0.5
    return tossed * shift + rng.standard_normal(canaries), tossed


def test_a_true_claim_is_refuted_no_more_often_than_stated() -> None:
    rng, epsilon = np.random.default_rng(0), 1.2
    true = 1.0 / (1.0 + math.exp(-epsilon))
    wrong = [
        epsilon_from_one_run(int(rng.binomial(200, true)), 200, 200, delta=0.0) > epsilon
        for _ in range(400)
    ]
    # Randomised response attains the bound: 5 % of 400 are 20; 35 is beyond 3 deviations.
    assert sum(wrong) < 35


def test_a_gaussian_of_the_claimed_shift_is_not_refuted_and_a_larger_one_is() -> None:
    rng = np.random.default_rng(1)
    above, below = 0, 0
    for _ in range(100):
        scores, tossed = _run(2.0, 1000, rng)
        order = np.argsort(scores)
        right = int(tossed[order[-100:]].sum() + (~tossed[order[:100]]).sum())
        limit = gaussian_shift_from_one_run(right, 200, 1000)
        above += limit > 2.0
        below += limit < 1.0
    assert above <= 12
    # The test has power: it seldom proves less than half of the shift.
    assert below <= 20


def test_the_choice_of_the_number_of_guesses_is_paid_for() -> None:
    rng = np.random.default_rng(2)
    wrong = 0
    for _ in range(200):
        scores, tossed = rng.standard_normal(200), rng.random(200) < 0.5
        right, guesses = best_guesses(scores, tossed, 1e-5)
        level = chosen_confidence(200)
        wrong += epsilon_from_one_run(right, guesses, 200, delta=1e-5, confidence=level) > 0.0
    assert wrong < 22


def test_trials_at_a_known_chance_hold_both_ways() -> None:
    rng, kappa = np.random.default_rng(3), 0.1
    # A mechanism that is exactly 1.5-private: γ = κe^ε.
    gamma = kappa * math.exp(1.5)
    above = [
        epsilon_from_trials(int(rng.binomial(400, gamma)), 400, kappa=kappa, delta=0.0) > 1.5
        for _ in range(400)
    ]
    assert sum(above) < 35
    assert epsilon_from_trials(400, 400, kappa=0.5, delta=0.0) > 4.0
    assert epsilon_from_trials(5, 400, kappa=0.1, delta=0.0) == 0.0


@pytest.mark.parametrize(
    ("right", "guesses", "canaries", "delta"),
    [(3, 2, 10, 0.0), (1, 11, 10, 0.0), (0, 0, 10, 0.0), (1, 2, 10, 1.0)],
)
def test_impossible_runs_are_refused(right: int, guesses: int, canaries: int, delta: float) -> None:
    with pytest.raises(InputError):
        epsilon_from_one_run(right, guesses, canaries, delta=delta)
