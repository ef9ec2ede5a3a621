"""The entry point: any DpEvent in, the best ceiling (or None, or a reason) out."""

import math

import dp_accounting as dp
import mpmath
import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri

from exhume import bounds
from exhume.bounds.flatten import flatten
from exhume.protocol.errors import InputError

noises = st.floats(0.3, 20.0)
rates = st.floats(0.001, 1.0)
counts = st.integers(1, 300)
kappas = st.floats(1e-5, 0.95)

ROUNDING = 1e-4
"""The grid raises a ceiling by less than this, relatively (other tests have closed forms)."""


def _gamma(noise, rate, steps, kappa):
    return bounds.ceiling(bounds.dp_sgd(noise, rate, steps), kappa).gamma


@settings(max_examples=15, deadline=None)
@given(noises, rates, counts, kappas)
def test_exact_then_tighter_then_theorem_2(noise, rate, steps, kappa):
    event = bounds.dp_sgd(noise, rate, steps)
    exact = bounds.ceiling(event, kappa).gamma
    curve = bounds.rdp_curve(event)
    tight, published = curve.tight(kappa)[0], curve.theorem_2(kappa)
    assert kappa <= exact <= tight * (1 + ROUNDING)
    assert tight <= published * (1 + 1e-9)


@pytest.mark.parametrize(("noise", "rate"), [(1.0, 0.1), (9.0, 0.5), (0.3, 0.01), (0.5, 0.9)])
def test_renyi_by_quadrature(noise, rate):
    """Whole orders against dp-accounting's finite sums, others against fifteen digits."""
    curve = bounds.rdp_curve(bounds.dp_sgd(noise, rate, 1))
    whole = np.array([2.0, 3.0, 8.0, 32.0, 200.0])
    event = dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(noise))
    reference = RdpAccountant(whole.astype(int).tolist()).compose(event).rdp
    assert curve.epsilons_at(whole) == pytest.approx(reference, rel=1e-7, abs=1e-12)
    for order in (1.05, 1.5, 2.7, 10.3):

        def integrand(x, order=order):
            ratio = 1 - rate + rate * mpmath.exp((2 * x - 1) / (2 * noise**2))
            return ratio**order * mpmath.npdf(x, 0, noise)

        span = [-12 * noise, 0, order / 2, order, order + 12 * noise]
        exact = mpmath.log(mpmath.quad(integrand, span)) / (order - 1)
        got = curve.epsilons_at(np.array([order]))[0]
        assert float(exact) * (1 - 1e-9) <= got <= float(exact) * (1 + 1e-7) + 1e-11


def test_renyi_curves_add_up():
    parts = [bounds.dp_sgd(1.0, 0.1, 10), dp.GaussianDpEvent(2.0), dp.LaplaceDpEvent(3.0)]
    orders = np.array([1.5, 2.0, 7.0])
    whole = bounds.rdp_curve(dp.ComposedDpEvent(parts)).epsilons_at(orders)
    each = [bounds.rdp_curve(part).epsilons_at(orders) for part in parts]
    assert whole == pytest.approx(np.sum(each, axis=0), rel=1e-12)


@settings(max_examples=15, deadline=None)
@given(noises, rates, counts, kappas, st.floats(1.05, 3.0))
def test_monotone(noise, rate, steps, kappa, factor):
    here = _gamma(noise, rate, steps, kappa)
    assert here <= _gamma(noise, rate, steps, min(1.0, factor * kappa))
    assert _gamma(factor * noise, rate, steps, kappa) <= here * (1 + ROUNDING)
    assert here <= _gamma(noise, min(1.0, factor * rate), steps, kappa) * (1 + ROUNDING)
    assert here <= _gamma(noise, rate, steps + 10, kappa) * (1 + ROUNDING)


@settings(max_examples=15, deadline=None)
@given(rates, counts, kappas)
def test_limits(rate, steps, kappa):
    assert _gamma(1.0, rate, 0, kappa) == kappa
    assert _gamma(1.0, 0.0, steps, kappa) == kappa
    assert _gamma(1e6, rate, steps, kappa) == pytest.approx(kappa, rel=1e-3)


def test_full_batch_is_in_closed_form():
    for steps, noise in [(1, 1.0), (100, 10.0), (7, 3.0)]:
        found = bounds.ceiling(bounds.dp_sgd(noise, 1.0, steps), 0.1)
        assert found.method is bounds.Method.GAUSSIAN
        assert found.gamma == pytest.approx(ndtr(ndtri(0.1) + math.sqrt(steps) / noise), rel=1e-12)


def test_tiny_kappa():
    # Far below what a Fourier transform resolves the Rényi ceiling takes over.
    event = bounds.dp_sgd(2.0, 0.001, 100_000)
    found = bounds.ceiling(event, 1e-20)
    assert found.method is bounds.Method.RDP
    assert 1e-20 <= found.gamma < 1e-18
    assert bounds.ceiling(event, 0.0).gamma < 1e-9


def test_one_distribution_for_many_kappas():
    event = bounds.dp_sgd(1.0, 0.1, 100)
    kappas = np.array([[1e-9, 0.01], [0.1, 0.9]])
    found = bounds.gammas(event, kappas)
    assert found.shape == (2, 2)
    for kappa, gamma in zip(kappas.flat, found.flat, strict=True):
        assert gamma == bounds.ceiling(event, float(kappa)).gamma
    assert bounds.privacy_loss(event) is bounds.privacy_loss(bounds.dp_sgd(1.0, 0.1, 100))
    assert bounds.gammas(dp.NonPrivateDpEvent(), kappas) is None


@pytest.mark.parametrize(
    "event",
    [
        dp.NonPrivateDpEvent(),
        dp.GaussianDpEvent(0.0),
        dp.LaplaceDpEvent(0.0),
        dp.RandomizedResponseDpEvent(0.0, 4),
        dp.PoissonSampledDpEvent(0.5, dp.GaussianDpEvent(0.0)),
        dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.5, dp.NonPrivateDpEvent()), 3),
        dp.ComposedDpEvent([dp.GaussianDpEvent(1.0), dp.NonPrivateDpEvent()]),
        dp.ComposedDpEvent([dp.UnsupportedDpEvent(), dp.NonPrivateDpEvent()]),
        dp.SampledWithoutReplacementDpEvent(10, 2, dp.GaussianDpEvent(0.0)),
    ],
)
def test_no_bound_without_a_guarantee(event):
    assert bounds.ceiling(event, 0.1) is None
    assert bounds.privacy_loss(event) is None
    assert bounds.rdp_curve(event) is None


@pytest.mark.parametrize(
    "event",
    [
        dp.NoOpDpEvent(),
        dp.SelfComposedDpEvent(dp.NonPrivateDpEvent(), 0),
        dp.PoissonSampledDpEvent(0.0, dp.NonPrivateDpEvent()),
        dp.PoissonSampledDpEvent(0.5, dp.NoOpDpEvent()),
        dp.GaussianDpEvent(math.inf),
        dp.RandomizedResponseDpEvent(1.0, 4),
        dp.ComposedDpEvent([]),
    ],
)
def test_what_says_nothing_leaves_a_blind_guess(event):
    found = bounds.ceiling(event, 0.1)
    assert found.gamma == 0.1
    assert found.method is bounds.Method.NO_LEAK


@pytest.mark.parametrize(
    ("event", "name"),
    [
        (dp.UnsupportedDpEvent(), "UnsupportedDpEvent"),
        (dp.ComposedDpEvent([dp.GaussianDpEvent(1.0), dp.UnsupportedDpEvent()]), "Unsupported"),
        (dp.SampledWithReplacementDpEvent(10, 2, dp.GaussianDpEvent(1.0)), "SampledWithRepl"),
        (dp.SampledWithoutReplacementDpEvent(10, 2, dp.LaplaceDpEvent(1.0)), "SampledWithout"),
        (dp.PoissonSampledDpEvent(0.1, dp.ZCDpEvent(1.0)), "ZCDpEvent"),
    ],
)
def test_unsupported_events_are_named(event, name):
    with pytest.raises(InputError, match=f"no accountant supports .*{name}"):
        bounds.ceiling(event, 0.1)


@pytest.mark.parametrize(
    "event",
    [
        dp.GaussianDpEvent(-1.0),
        dp.GaussianDpEvent(math.nan),
        dp.LaplaceDpEvent(-1.0),
        dp.PoissonSampledDpEvent(1.5, dp.GaussianDpEvent(1.0)),
        dp.PoissonSampledDpEvent(math.nan, dp.GaussianDpEvent(1.0)),
        dp.SelfComposedDpEvent(dp.GaussianDpEvent(1.0), -1),
        "gaussian",
    ],
)
def test_wrong_events(event):
    with pytest.raises(InputError):
        bounds.ceiling(event, 0.1)


@pytest.mark.parametrize("kappa", [-0.1, 1.1, math.nan])
def test_wrong_kappa(kappa):
    with pytest.raises(InputError, match="kappa"):
        bounds.ceiling(dp.GaussianDpEvent(1.0), kappa)


def test_flatten_merges():
    step = dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(1.0))
    event = dp.ComposedDpEvent(
        [
            step,
            dp.SelfComposedDpEvent(dp.ComposedDpEvent([step, dp.GaussianDpEvent(2.0)]), 4),
            dp.PoissonSampledDpEvent(1.0, dp.GaussianDpEvent(2.0)),
            dp.LaplaceDpEvent(3.0),
        ]
    )
    flat = flatten(event)
    assert flat.shift == pytest.approx(math.sqrt(5 / 4))
    assert [(type(t.event).__name__, t.count) for t in flat.terms] == [
        ("PoissonSampledDpEvent", 5),
        ("LaplaceDpEvent", 1),
    ]
    # A sample shared by k Gaussians is a sample of one Gaussian with σ/√k.
    shared = dp.PoissonSampledDpEvent(0.1, dp.SelfComposedDpEvent(dp.GaussianDpEvent(2.0), 4))
    assert flatten(shared) == flatten(step)


def test_order_of_composition_does_not_matter():
    a, b = bounds.dp_sgd(1.0, 0.1, 10), dp.ComposedDpEvent([dp.LaplaceDpEvent(2.0)])
    one = bounds.ceiling(dp.ComposedDpEvent([a, b]), 0.1).gamma
    assert bounds.ceiling(dp.ComposedDpEvent([b, a]), 0.1).gamma == one
    assert one > max(bounds.ceiling(a, 0.1).gamma, bounds.ceiling(b, 0.1).gamma)


def test_zcdp_events():
    found = bounds.ceiling(dp.ZCDpEvent(0.5), 0.1)
    assert found.gamma == pytest.approx(bounds.from_zcdp(0.5, 0.1).gamma, rel=1e-6)
    assert found.gamma < bounds.corollary_4(0.5, 0.1)
    # A Gaussian is exactly 1/(2σ²)-zCDP, so knowing only that can't be better than knowing it.
    mixed = dp.ComposedDpEvent([dp.ZCDpEvent(0.25), dp.GaussianDpEvent(math.sqrt(2.0))])
    assert bounds.ceiling(mixed, 0.1).gamma == pytest.approx(found.gamma, rel=1e-6)
    assert bounds.ceiling(dp.GaussianDpEvent(1.0), 0.1).gamma < found.gamma


def test_sampling_without_replacement_counts_the_target_twice():
    # Everything sampled: a sum of clipped gradients in which one is replaced, two norms away.
    event = dp.SampledWithoutReplacementDpEvent(50, 50, dp.GaussianDpEvent(4.0))
    got = bounds.ceiling(event, 0.1)
    assert got.method is bounds.Method.RDP
    assert got.gamma == pytest.approx(bounds.from_zcdp(0.5 / 2.0**2, 0.1).gamma, rel=1e-6)
    assert got.gamma > float(ndtr(ndtri(0.1) + 2.0 / 4.0))


def test_other_events_have_ceilings():
    others = [
        dp_event.DiscreteLaplaceDpEvent(1.0, 1),
        dp_event.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0], [0.9, 0.1]),
        dp_event.TruncatedSubsampledGaussianDpEvent(1000, 0.01, 30, 1.0),
        dp.PoissonSampledDpEvent(0.1, dp.LaplaceDpEvent(1.0)),
        dp.SingleEpochTreeAggregationDpEvent(2.0, 4),
        dp_event.RepeatAndSelectDpEvent(dp.GaussianDpEvent(5.0), 2.0, 1.0),
    ]
    gammas = [bounds.ceiling(event, 0.1).gamma for event in others]
    assert all(0.1 < gamma < 1.0 for gamma in gammas)
    # Randomised rounding apart: an integer-valued Laplace at epsilon = 1 is 1-DP, and e·κ is tight.
    assert gammas[0] == pytest.approx(0.1 * math.e, rel=1e-4)
    # Sampling with probability .1 is a mixture, and truncation that hardly ever acts is none.
    assert gammas[1] == pytest.approx(0.9 * 0.1 + 0.1 * ndtr(ndtri(0.1) + 1.0), rel=1e-4)
    plain = bounds.ceiling(bounds.dp_sgd(1.0, 0.01, 1), 0.1).gamma
    assert plain <= gammas[2] == pytest.approx(plain, rel=1e-3)


def test_guarantees_alone_are_weaker_than_the_mechanism():
    event = bounds.dp_sgd(1.0, 0.1, 100)
    epsilon = bounds.privacy_loss(event).epsilon(1e-5)
    for kappa in (0.001, 0.1, 0.9):
        exact = bounds.ceiling(event, kappa).gamma
        assert exact <= bounds.from_approximate_dp(epsilon, 1e-5, kappa).gamma
