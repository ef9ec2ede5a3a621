"""The noise for a wanted ceiling, on the safe side."""

import math

import pytest
from scipy.special import ndtri

from exhume import bounds
from exhume.protocol.errors import InputError


@pytest.mark.parametrize(
    ("gamma", "kappa", "rate", "steps"),
    [(0.05, 0.01, 0.01, 1000), (0.5, 0.1, 0.1, 100), (0.02, 0.001, 0.004, 3000)],
)
def test_certified_and_least(gamma, kappa, rate, steps):
    found = bounds.noise_multiplier_for(gamma, kappa, sample_rate=rate, steps=steps)
    event = bounds.dp_sgd(found.noise_multiplier, rate, steps)
    assert bounds.ceiling(event, kappa) == found.ceiling
    assert found.ceiling.gamma <= gamma
    less = bounds.dp_sgd(0.999 * found.noise_multiplier, rate, steps)
    assert bounds.ceiling(less, kappa).gamma > gamma


@pytest.mark.parametrize(("gamma", "kappa", "steps"), [(0.3, 0.1, 1), (0.9, 0.5, 400)])
def test_full_batch_in_closed_form(gamma, kappa, steps):
    found = bounds.noise_multiplier_for(gamma, kappa, sample_rate=1.0, steps=steps)
    exact = math.sqrt(steps) / (ndtri(gamma) - ndtri(kappa))
    assert exact * (1 - 1e-12) <= found.noise_multiplier <= exact * (1 + 1e-4)


def test_precision_is_kept():
    coarse = bounds.noise_multiplier_for(0.3, 0.1, sample_rate=1.0, steps=1, precision=0.1)
    fine = bounds.noise_multiplier_for(0.3, 0.1, sample_rate=1.0, steps=1, precision=1e-8)
    assert fine.noise_multiplier <= coarse.noise_multiplier <= 1.1 * fine.noise_multiplier


def test_when_any_noise_will_do():
    # A record is in at most one step in a hundred: without noise it would leak that often.
    found = bounds.noise_multiplier_for(0.5, 0.1, sample_rate=0.01, steps=1)
    assert found.noise_multiplier < 0.01
    assert found.ceiling.gamma < 0.12


@pytest.mark.parametrize(
    ("gamma", "kappa", "rate", "steps", "message"),
    [
        (0.1, 0.1, 1.0, 1, "blind guess already"),
        (0.05, 0.1, 1.0, 1, "blind guess already"),
        (1.5, 0.1, 1.0, 1, "gamma"),
        (math.nan, 0.1, 1.0, 1, "gamma"),
        (0.5, 0.1, 1.5, 1, "sample_rate"),
        (0.5, 0.1, 1.0, 0, "steps"),
        (0.1 + 1e-12, 0.1, 1.0, 10**6, "leaves gamma above"),
    ],
)
def test_errors(gamma, kappa, rate, steps, message):
    with pytest.raises(InputError, match=message):
        bounds.noise_multiplier_for(gamma, kappa, sample_rate=rate, steps=steps)


def test_wrong_precision():
    with pytest.raises(InputError, match="precision"):
        bounds.noise_multiplier_for(0.5, 0.1, sample_rate=1.0, steps=1, precision=0.0)
