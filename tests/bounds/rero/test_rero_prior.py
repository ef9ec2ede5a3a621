"""kappa of priors that have a formula."""

import itertools
import math
import sys

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume import bounds
from exhume.protocol.errors import InputError


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 2000), st.floats(0.05, 20.0), st.floats(0.05, 20.0))
def test_gaussian_against_fifty_digits(dimension, sigma, eta):
    with mpmath.workdps(50):
        reference = mpmath.gammainc(
            mpmath.mpf(dimension) / 2, 0, (mpmath.mpf(eta) / sigma) ** 2 / 2, regularized=True
        )
        got = bounds.kappa_gaussian(dimension=dimension, sigma=sigma, eta=eta)
        if reference > mpmath.mpf(10) ** -290:
            assert got == pytest.approx(float(reference), rel=1e-8)
        assert got >= reference * (1 - mpmath.mpf(10) ** -8)
        assert bounds.kappa_gaussian_chernoff(dimension=dimension, sigma=sigma, eta=eta) >= got * (
            1 - 1e-9
        )


def test_gaussian_centre_is_the_best_guess():
    # Blind guesses elsewhere do worse: the share of draws within eta, by simulation.
    draws = np.random.default_rng(0).normal(scale=0.7, size=(200_000, 3))
    kappa = bounds.kappa_gaussian(dimension=3, sigma=0.7, eta=1.0)
    centre = np.mean(np.linalg.norm(draws, axis=1) <= 1.0)
    assert centre == pytest.approx(kappa, abs=4 * math.sqrt(kappa * (1 - kappa) / 200_000))
    assert np.mean(np.linalg.norm(draws - [0.3, 0.0, 0.0], axis=1) <= 1.0) < kappa


def test_uniform_ball():
    assert bounds.kappa_uniform_ball(dimension=2, radius=1.0, eta=0.5) == 0.25
    assert bounds.kappa_uniform_ball(dimension=2, radius=1.0, eta=3.0) == 1.0
    assert bounds.kappa_uniform_ball(dimension=2, radius=1.0, eta=0.0) == 0.0


def test_underflow_errs_upwards():
    assert bounds.kappa_uniform_ball(dimension=10_000, radius=1.0, eta=0.5) == sys.float_info.min
    assert bounds.kappa_gaussian(dimension=10_000, sigma=1.0, eta=1.0) > 0.0


def test_finite():
    assert bounds.kappa_finite([0.2, 0.5, 0.3]) == 0.5
    assert bounds.kappa_uniform(8) == 0.125
    losses = np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0)))
    assert bounds.kappa_finite_losses([0.1, 0.2, 0.3, 0.4], losses, eta=1.0) == pytest.approx(0.9)
    assert bounds.kappa_finite_losses([0.1, 0.2, 0.3, 0.4], losses, eta=0.0) == 0.4


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=6), st.data())
def test_product_by_enumeration(kappas, data):
    needed = data.draw(st.integers(0, len(kappas)))
    reference = 0.0
    for hits in itertools.product([0, 1], repeat=len(kappas)):
        if sum(hits) >= needed:
            reference += math.prod(k if h else 1 - k for k, h in zip(kappas, hits, strict=True))
    assert bounds.kappa_product(kappas, at_least=needed) == pytest.approx(reference, abs=1e-12)
    assert bounds.kappa_product(kappas) == pytest.approx(math.prod(kappas), abs=1e-12)


@pytest.mark.parametrize(
    "call",
    [
        lambda: bounds.kappa_uniform_ball(dimension=0, radius=1.0, eta=0.5),
        lambda: bounds.kappa_uniform_ball(dimension=2, radius=-1.0, eta=0.5),
        lambda: bounds.kappa_uniform_ball(dimension=2, radius=1.0, eta=math.nan),
        lambda: bounds.kappa_gaussian(dimension=2, sigma=0.0, eta=0.5),
        lambda: bounds.kappa_gaussian(dimension=2.5, sigma=1.0, eta=0.5),
        lambda: bounds.kappa_finite([0.5, 0.4]),
        lambda: bounds.kappa_finite([1.5, -0.5]),
        lambda: bounds.kappa_finite_losses([0.5, 0.5], [[0.0, 1.0, 2.0]], eta=1.0),
        lambda: bounds.kappa_finite_losses([0.5, 0.5], [[0.0, math.nan]], eta=1.0),
        lambda: bounds.kappa_product([]),
        lambda: bounds.kappa_product([0.5], at_least=2),
        lambda: bounds.kappa_uniform(0),
    ],
)
def test_wrong_parameters(call):
    with pytest.raises(InputError):
        call()
