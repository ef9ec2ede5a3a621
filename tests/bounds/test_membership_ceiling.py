"""What no membership test can beat."""

from __future__ import annotations

import dp_accounting as dp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from exhume.attacks.informed.membership import Against, PowerCeiling, power_ceiling
from exhume.bounds import dp_sgd, membership_risk, privacy_loss

ANOTHER, NOTHING = Against.ANOTHER_RECORD, Against.NOTHING


@settings(deadline=None, max_examples=30)
@given(noise=st.floats(0.2, 20.0), rate=st.floats(1e-4, 0.999))
def test_gaussian_noise_is_exact(noise, rate):
    """Replacing a record moves the mean by up to two sensitivities: Φ(Φ⁻¹(α) + 2/σ)."""
    event = dp.GaussianDpEvent(noise)
    replaced = PowerCeiling(event, ANOTHER).true_positive_rate(rate)
    assert replaced == pytest.approx(norm.cdf(norm.ppf(rate) + 2 / noise), abs=1e-9)
    alone = PowerCeiling(event, NOTHING).true_positive_rate(rate)
    assert alone == pytest.approx(norm.cdf(norm.ppf(rate) + 1 / noise), abs=1e-9)


@pytest.mark.parametrize("noise", [0.5, 1.0, 4.0])
def test_advantage_of_gaussian_noise(noise):
    event = dp.GaussianDpEvent(noise)
    assert PowerCeiling(event, ANOTHER).advantage == pytest.approx(2 * norm.cdf(1 / noise) - 1)
    alone = PowerCeiling(event, NOTHING).advantage
    assert alone == pytest.approx(2 * norm.cdf(0.5 / noise) - 1, abs=1e-4)
    assert alone >= 2 * norm.cdf(0.5 / noise) - 1 - 1e-12


@pytest.mark.parametrize("against", [ANOTHER, NOTHING])
@pytest.mark.parametrize(
    "event",
    [dp_sgd(1.0, 0.1, 50), dp.LaplaceDpEvent(2.0), dp_sgd(2.0, 0.5, 10)],
    ids=["subsampled", "laplace", "half"],
)
def test_advantage_is_the_widest_gap(event, against):
    """Against every rate on a grid, from above and nearly reached."""
    ceiling = PowerCeiling(event, against)
    gaps = [ceiling.true_positive_rate(rate) - rate for rate in np.linspace(0, 1, 101)]
    assert max(gaps) <= ceiling.advantage + 1e-9
    assert max(gaps) >= ceiling.advantage - 5e-3


def test_laplace_is_epsilon_dp():
    """Two steps of ε-DP: the ceiling lies below that of 2ε, and its advantage too."""
    epsilon = 0.5
    ceiling = PowerCeiling(dp.LaplaceDpEvent(1 / epsilon), ANOTHER)
    limit = (np.exp(2 * epsilon) - 1) / (np.exp(2 * epsilon) + 1)
    assert ceiling.advantage <= limit + 1e-9
    assert ceiling.true_positive_rate(0.01) <= 0.01 * np.exp(2 * epsilon) + 1e-9
    # Laplace noise moved by two sensitivities reaches 1 − e^−ε exactly.
    assert ceiling.advantage == pytest.approx(1 - np.exp(-epsilon), abs=1e-3)


def test_replaced_is_easier_than_left_out():
    for event in (dp_sgd(1.0, 0.1, 50), dp.GaussianDpEvent(2.0)):
        for rate in (0.001, 0.1, 0.5):
            replaced = PowerCeiling(event, ANOTHER).true_positive_rate(rate)
            assert replaced >= PowerCeiling(event, NOTHING).true_positive_rate(rate) - 1e-12


def test_left_out_is_the_membership_risk():
    event = dp_sgd(1.0, 0.1, 50)
    assert PowerCeiling(event, NOTHING).advantage == membership_risk(privacy_loss(event)).advantage


def test_from_renyi_alone():
    """Where no privacy-loss distribution is known: looser than Gaussian noise, but a ceiling."""
    zcdp, gaussian = dp.ZCDpEvent(0.5), dp.GaussianDpEvent(1.0)
    assert privacy_loss(zcdp) is None
    for against in (ANOTHER, NOTHING):
        exact = PowerCeiling(gaussian, against).advantage
        assert exact <= PowerCeiling(zcdp, against).advantage <= min(1.0, exact + 0.3)


def test_no_bound_no_ceiling():
    assert power_ceiling(dp.NonPrivateDpEvent(), ANOTHER) is None
    assert power_ceiling(dp.GaussianDpEvent(1.0), NOTHING) is not None


def test_nothing_leaks_nothing_is_gained():
    silent = power_ceiling(dp.NoOpDpEvent(), ANOTHER)
    assert silent.advantage == 0.0
    assert silent.true_positive_rate(0.25) == pytest.approx(0.25)
