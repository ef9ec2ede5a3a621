"""The closed forms against fifty digits of arithmetic, and their errors."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume import bounds
from exhume.bounds import rdp
from exhume.bounds.closed_form import gaussian_shift
from exhume.protocol.errors import InputError

kappas = st.floats(1e-12, 1.0 - 1e-6)
epsilons = st.floats(0.0, 20.0)
orders = st.floats(1.01, 200.0)


@pytest.fixture(autouse=True)
def _fifty_digits():
    with mpmath.workdps(50):
        yield


def _cdf(x):
    return mpmath.erfc(-x / mpmath.sqrt(2)) / 2


@settings(max_examples=50, deadline=None)
@given(orders, epsilons, kappas)
def test_theorem_2(order, epsilon, kappa):
    a, e, k = map(mpmath.mpf, (order, epsilon, kappa))
    reference = min(mpmath.mpf(1), (k * mpmath.exp(e)) ** ((a - 1) / a))
    assert bounds.theorem_2(order, epsilon, kappa) == pytest.approx(float(reference), rel=1e-12)


@settings(max_examples=50, deadline=None)
@given(epsilons, st.floats(0.0, 1.0), kappas)
def test_approximate_dp(epsilon, delta, kappa):
    e, d, k = map(mpmath.mpf, (epsilon, delta, kappa))
    # One minus the trade-off function of (epsilon, delta)-DP (Dong, Roth and Su 2022) at kappa.
    trade_off = max(mpmath.mpf(0), 1 - d - mpmath.exp(e) * k, mpmath.exp(-e) * (1 - d - k))
    got = bounds.approximate_dp(epsilon, delta, kappa)
    assert got == pytest.approx(float(1 - trade_off), rel=1e-12)


@settings(max_examples=50, deadline=None)
@given(epsilons, st.floats(0.0, 30.0), kappas)
def test_pure_and_concentrated(epsilon, rho, kappa):
    k = mpmath.mpf(kappa)
    assert bounds.corollary_3(epsilon, kappa) == pytest.approx(
        float(min(mpmath.mpf(1), k * mpmath.exp(epsilon))), rel=1e-12
    )
    surprise = mpmath.log(1 / k)
    gamma = 1 if rho >= surprise else mpmath.exp(-((mpmath.sqrt(surprise) - mpmath.sqrt(rho)) ** 2))
    assert bounds.corollary_4(rho, kappa) == pytest.approx(float(gamma), rel=1e-10)


def test_concentrated_ends():
    assert bounds.corollary_4(math.log(10.0), 0.1) == 1.0
    assert bounds.corollary_4(100.0, 0.1) == 1.0
    assert bounds.corollary_4(0.0, 0.1) == pytest.approx(0.1, rel=1e-14)
    assert bounds.corollary_4(0.5, 0.0) == 0.0


@settings(max_examples=50, deadline=None)
@given(epsilons, st.integers(2, 1000), st.floats(0.0, 1.0))
def test_finite_domain(epsilon, size, share):
    kappa = 1.0 / size + share * (1.0 - 1.0 / size)
    e = mpmath.exp(mpmath.mpf(epsilon))
    reference = size * mpmath.mpf(kappa) * e / (size + e - 1)
    got = bounds.finite_domain(epsilon, kappa, size)
    assert got == pytest.approx(float(min(mpmath.mpf(1), reference)), rel=1e-12)


@settings(max_examples=50, deadline=None)
@given(st.floats(0.05, 100.0), st.integers(0, 1000), kappas)
def test_gaussian(noise, steps, kappa):
    quantile = mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(kappa) - 1)
    reference = _cdf(quantile + mpmath.sqrt(steps) / mpmath.mpf(noise))
    assert float(bounds.gaussian(noise, steps, kappa)) == pytest.approx(float(reference), rel=1e-8)


def test_gaussian_limits_and_shape():
    assert float(bounds.gaussian(1.0, 0, 0.3)) == 0.3
    assert float(bounds.gaussian(1e9, 1, 0.3)) == pytest.approx(0.3, abs=1e-9)
    assert float(bounds.gaussian(1.0, 1, 0.0)) == 0.0
    assert float(bounds.gaussian(1.0, 1, 1.0)) == 1.0
    assert gaussian_shift(1.0, np.full((2, 3), 0.1)).shape == (2, 3)


@settings(max_examples=30, deadline=None)
@given(st.floats(1.05, 60.0), st.floats(1e-3, 5.0), st.floats(1e-6, 0.999))
def test_renyi_roots_solve_their_equations(order, epsilon, kappa):
    """Both directions, put back into the divergence they came from."""
    a, k = mpmath.mpf(order), mpmath.mpf(kappa)

    def divergence(p, q):
        terms = p**a * q ** (1 - a) + (1 - p) ** a * (1 - q) ** (1 - a)
        return mpmath.log(terms) / (a - 1)

    forward = mpmath.mpf(float(rdp.forward(order, epsilon, kappa)))
    if forward < 1:
        assert float(divergence(forward, k)) == pytest.approx(epsilon, rel=1e-6, abs=1e-9)
    else:
        assert epsilon >= -math.log(kappa) * (1 - 1e-9)
    backward = float(rdp.backward(order, epsilon, kappa))
    assert kappa <= backward <= 1.0
    if backward < 1.0 - 1e-9:
        assert float(divergence(k, mpmath.mpf(backward))) == pytest.approx(
            epsilon, rel=1e-5, abs=1e-8
        )


@settings(max_examples=50, deadline=None)
@given(orders, epsilons, kappas)
def test_tight_is_never_above_theorem_2(order, epsilon, kappa):
    tight = float(rdp.tight(order, epsilon, kappa))
    assert kappa * (1 - 1e-12) <= tight <= bounds.theorem_2(order, epsilon, kappa) * (1 + 1e-12)


def test_renyi_at_large_orders_is_pure_dp():
    for kappa in (0.01, 0.3, 0.9):
        assert float(rdp.tight(1e6, 1.0, kappa)) == pytest.approx(
            bounds.approximate_dp(1.0, 0.0, kappa), rel=1e-4
        )
        assert bounds.from_rdp(math.inf, 1.0, kappa).gamma == bounds.approximate_dp(1.0, 0.0, kappa)


@pytest.mark.parametrize("kappa", [0.0, 1.0])
def test_renyi_at_the_ends(kappa):
    assert float(rdp.forward(2.0, 1.0, kappa)) == kappa
    assert float(rdp.tight(2.0, 1.0, kappa)) == kappa


@pytest.mark.parametrize(
    "call",
    [
        lambda: bounds.theorem_2(1.0, 1.0, 0.1),
        lambda: bounds.theorem_2(2.0, -1.0, 0.1),
        lambda: bounds.theorem_2(2.0, 1.0, 1.5),
        lambda: bounds.theorem_2(2.0, math.nan, 0.1),
        lambda: bounds.corollary_3(math.inf, 0.1),
        lambda: bounds.corollary_4(-0.1, 0.1),
        lambda: bounds.corollary_4(0.1, math.nan),
        lambda: bounds.approximate_dp(1.0, 1.1, 0.1),
        lambda: bounds.approximate_dp(1.0, 0.0, -0.1),
        lambda: bounds.finite_domain(1.0, 0.1, 4),
        lambda: bounds.finite_domain(1.0, 0.5, 0),
        lambda: bounds.theorem_5(1.0, 2.0),
        lambda: bounds.gaussian(0.0, 1, 0.1),
        lambda: bounds.gaussian(1.0, -1, 0.1),
        lambda: bounds.gaussian(1.0, 1, [0.1, 2.0]),
        lambda: rdp.tight(1.0, 1.0, 0.1),
        lambda: rdp.tight(2.0, -1.0, 0.1),
        lambda: bounds.Ceiling(1.2, 0.1, bounds.Method.PLD),
    ],
)
def test_wrong_parameters(call):
    with pytest.raises(InputError):
        call()
