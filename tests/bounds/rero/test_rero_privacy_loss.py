"""Privacy-loss distributions against closed forms, enumeration, quadrature and dp-accounting."""

import math
from fractions import Fraction

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, optimize
from scipy.special import ndtr, ndtri

from exhume import bounds
from exhume.bounds import discretise
from exhume.bounds.privacy_loss import PrivacyLoss, nothing
from exhume.protocol.errors import InputError

KAPPAS = np.array([0.0, 1e-9, 1e-6, 1e-3, 0.01, 0.1, 0.5, 0.9, 0.999, 1.0])


@settings(max_examples=25, deadline=None)
@given(st.floats(0.1, 30.0), st.floats(1e-3, 1.0))
def test_one_step_against_its_closed_form(noise, rate):
    """T = 1: the test is a threshold on x, so γ = (1-q)κ + qΦ(Φ⁻¹(κ) + 1/σ)."""
    interval = 5e-3 * rate / noise
    loss = discretise.subsampled_gaussian(noise, rate, interval)
    exact = (1 - rate) * KAPPAS + rate * ndtr(ndtri(KAPPAS) + 1 / noise)
    got = loss.gamma(KAPPAS)
    assert (got >= exact * (1 - 1e-12)).all()
    # A chord lies above the curve by at most a quarter of its interval times the mass on it.
    assert (got - exact <= 0.25 * interval + 1e-12).all()


@pytest.mark.parametrize(("noise", "steps"), [(1.0, 1), (2.0, 16), (0.5, 4), (10.0, 400)])
def test_composition_against_the_gaussian(noise, steps):
    loss = discretise.subsampled_gaussian(noise, 1.0, 0.005 / noise).repeat(steps)
    exact = bounds.gaussian(noise, steps, KAPPAS)
    got = loss.gamma(KAPPAS)
    assert (got >= exact).all()
    assert got[2:] == pytest.approx(exact[2:], rel=1e-4)


@pytest.mark.parametrize(("noise", "rate", "kappa"), [(1.0, 0.1, 0.1), (0.7, 0.5, 0.01)])
def test_two_steps_against_quadrature(noise, rate, kappa):
    def loss(x):
        return np.log(1 - rate + rate * np.exp((2 * x - 1) / (2 * noise**2)))

    def needed(level):
        inside = (np.exp(level) - 1 + rate) / rate
        return noise**2 * math.log(inside) + 0.5 if inside > 0 else -math.inf

    def mass(threshold, centre):
        def at(x):
            first = math.exp(-0.5 * ((x - centre) / noise) ** 2) / (noise * math.sqrt(2 * math.pi))
            edge = needed(threshold - float(loss(x)))
            without, present = ndtr(-edge / noise), ndtr((1 - edge) / noise)
            return first * np.array([without, present])

        span = (-9 * noise, 1 + 9 * noise)
        return [integrate.quad(lambda x, i=i: at(x)[i], *span, limit=200)[0] for i in (0, 1)]

    threshold = optimize.brentq(lambda t: mass(t, 0.0)[0] - kappa, -1.0, 12.0, xtol=1e-12)
    (without, once), (also_once, twice) = mass(threshold, 0.0), mass(threshold, 1.0)
    exact = (1 - rate) ** 2 * without + rate * (1 - rate) * (once + also_once) + rate**2 * twice
    got = bounds.ceiling(bounds.dp_sgd(noise, rate, 2), kappa).gamma
    assert exact * (1 - 1e-7) <= got <= exact * (1 + 2e-5)


def _laplace(epsilon, kappa):
    """The trade-off of two Laplace distributions, by hand: three pieces."""
    if kappa <= 0.5 * math.exp(-epsilon):
        return math.exp(epsilon) * kappa
    if kappa <= 0.5:
        return 1 - math.exp(-epsilon) / (4 * kappa)
    return 1 - math.exp(-epsilon) * (1 - kappa)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_laplace_in_closed_form(epsilon):
    event = dp.LaplaceDpEvent(1.0 / epsilon)
    for kappa in (1e-3, 0.01, 0.1, 0.3, 0.5, 0.8, 0.99):
        got = bounds.ceiling(event, kappa).gamma
        assert got == pytest.approx(_laplace(epsilon, kappa), rel=2e-5)
        assert got >= _laplace(epsilon, kappa) * (1 - 1e-12)


def _answers(buckets, truthful, reports, kappa):
    """γ(κ) of repeated randomised response in exact arithmetic: outcomes by number of hits."""
    hit, other = truthful + (1 - truthful) / buckets, Fraction(1, buckets)
    gamma, left = Fraction(0), Fraction(kappa)
    for hits in range(reports, -1, -1):
        ways = math.comb(reports, hits)
        with_target = ways * hit**hits * (1 - hit) ** (reports - hits)
        without = ways * other**hits * (1 - other) ** (reports - hits)
        share = min(Fraction(1), left / without)
        gamma, left = gamma + share * with_target, left - share * without
    return float(gamma)


@pytest.mark.parametrize("reports", [1, 10, 200])
def test_randomised_response_by_enumeration(reports):
    event = dp.SelfComposedDpEvent(dp.RandomizedResponseDpEvent(0.9, 4), reports)
    for kappa in (1e-12, 1e-9, 1e-6, 1e-3, 0.1, 0.7):
        exact = _answers(4, Fraction(0.1), reports, Fraction(kappa))
        got = bounds.ceiling(event, kappa).gamma
        # Never below, whatever the rounding; above by rounded-up losses, 1e-5 a report at most.
        assert exact * (1 - 1e-9) <= got <= exact * math.exp(1.01e-5 * reports) + 1e-10


@pytest.mark.parametrize(("noise", "rate", "steps"), [(1.0, 0.01, 100), (0.6, 0.1, 20)])
def test_against_dp_accounting(noise, rate, steps):
    """The slow reference: the accountant's own "remove" distribution, and its (ε, δ)."""
    step = dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(noise))
    event = dp.SelfComposedDpEvent(step, steps)
    fast = bounds.privacy_loss(event)
    accountant = PLDAccountant(value_discretization_interval=1e-4).compose(event)
    slow = accountant._pld._pmf_remove
    for epsilon in (-1.0, -0.1, 0.0, 0.3, 1.0, 2.0):
        assert fast.delta(epsilon) == pytest.approx(
            slow.get_delta_for_epsilon(epsilon), rel=2e-4, abs=1e-9
        )
    for delta in (1e-3, 1e-5, 1e-7):
        assert fast.epsilon(delta) == pytest.approx(accountant.get_epsilon(delta), rel=2e-4)
    one = discretise.from_accountant(event, accountant.neighboring_relation, 1e-4)
    assert fast.gamma(KAPPAS[3:]) == pytest.approx(one.gamma(KAPPAS[3:]), rel=2e-4)


def test_add_direction_is_lower_and_not_used():
    step = dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(0.6))
    event = dp.SelfComposedDpEvent(step, 20)
    add = PLDAccountant(value_discretization_interval=1e-3).compose(event)._pld._pmf_add
    assert bounds.privacy_loss(event).delta(1.0) > 1.2 * add.get_delta_for_epsilon(1.0)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12), st.integers(-10, 3), st.data())
def test_curve_is_the_minimum_over_epsilon(weights, lowest, data):
    """γ(κ) against the definition: min over real ε of δ(ε) + e^ε κ, on a fine grid of ε."""
    masses = np.array(weights) / max(1.0, sum(weights))
    infinite = max(0.0, 1.0 - float(masses.sum()))
    loss = PrivacyLoss(0.5, lowest, masses, infinite)
    kappa = data.draw(st.floats(0.0, 1.0))
    grid = np.concatenate([loss.losses, np.linspace(-12, 12, 400), [-60.0]])
    brute = min(1.0, min(loss.delta(e) + math.exp(e) * kappa for e in grid))
    assert float(loss.gamma(kappa)) == pytest.approx(max(kappa, brute), abs=1e-9)


def test_negative_epsilon_matters():
    # At κ = .9 the best ε is negative: the minimum over ε ≥ 0 would be above 1.
    loss = bounds.privacy_loss(bounds.dp_sgd(1.0, 1.0, 1))
    assert min(loss.delta(e) + math.exp(e) * 0.9 for e in np.linspace(0, 5, 50)) > 1.0
    assert float(loss.gamma(0.9)) == pytest.approx(0.98874, abs=1e-5)


def test_composition_is_commutative_and_associative():
    a = discretise.subsampled_gaussian(1.0, 0.2, 1e-3)
    b = discretise.subsampled_gaussian(2.0, 0.5, 1e-3)
    assert a.compose(b).gamma(KAPPAS) == pytest.approx(b.compose(a).gamma(KAPPAS), abs=1e-12)
    by_hand = a.compose(a).compose(a)
    # Both leave room for the rounding of their sums, in proportion to their lengths.
    room = 1e-15 * (len(by_hand.probabilities) + len(a.repeat(3).probabilities))
    assert a.repeat(3).gamma(KAPPAS) == pytest.approx(by_hand.gamma(KAPPAS), abs=room)
    assert (a.compose(nothing(1e-3)).gamma(KAPPAS) >= a.gamma(KAPPAS)).all()


def test_no_run_loses_nothing():
    loss = discretise.subsampled_gaussian(1.0, 0.2, 1e-3).repeat(0)
    assert loss.gamma(KAPPAS) == pytest.approx(KAPPAS, abs=0.0)
    assert loss.epsilon(1e-5) == 0.0


def test_epsilon_and_delta_are_inverse():
    loss = bounds.privacy_loss(bounds.dp_sgd(1.0, 0.1, 100))
    for delta in (0.3, 1e-2, 1e-5, 1e-9):
        epsilon = loss.epsilon(delta)
        assert loss.delta(epsilon) == pytest.approx(delta, rel=1e-6)
    assert loss.epsilon(0.0) == math.inf


def test_membership_from_the_same_distribution():
    risk = bounds.membership_risk(bounds.privacy_loss(bounds.dp_sgd(2.0, 1.0, 4)))
    # Two unit Gaussians one apart: the rate at 1 % false positives, and 2Φ(1/2) - 1.
    assert risk.true_positive_rate == pytest.approx(ndtr(ndtri(0.01) + 1.0), rel=1e-4)
    assert risk.advantage == pytest.approx(2 * ndtr(0.5) - 1, rel=1e-4)
    assert risk.balanced_accuracy == pytest.approx(0.5 + 0.5 * risk.advantage)


def test_errors():
    loss = nothing(1e-3)
    with pytest.raises(InputError):
        loss.gamma([0.5, 1.5])
    with pytest.raises(InputError):
        loss.delta(math.nan)
    with pytest.raises(InputError):
        loss.epsilon(-1.0)
    with pytest.raises(InputError):
        loss.compose(nothing(1e-4))
    with pytest.raises(InputError):
        loss.repeat(-1)
