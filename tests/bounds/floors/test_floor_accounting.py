"""What a DpEvent says about one record: information, and the divergence between two records."""

import math

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant
from scipy.integrate import quad
from scipy.stats import norm

from exhume.bounds.floors import event_information, event_replacement_divergence
from exhume.bounds.floors.accounting import GaussianSteps, gaussian_steps
from exhume.protocol.errors import InputError


def poisson(rate, noise, steps=1):
    return dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(noise)), steps)


def slow_information(rate, noise):
    """KL((1-q) N(0, σ²) + q N(1, σ²) ‖ N(0, σ²)) by adaptive quadrature of p log(p/q) - p + q."""

    def integrand(x):
        ratio = 1 - rate + rate * math.exp((2 * x - 1) / (2 * noise**2))
        return norm.pdf(x, 0, noise) * (ratio * math.log(ratio) - ratio + 1)

    ends = -9 * noise, 1 + 9 * noise
    return quad(integrand, *ends, limit=400, points=[0.0, 0.5, 1.0], epsabs=1e-13)[0]


@pytest.mark.parametrize("noise", [0.3, 0.7, 1.0, 3.0])
@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.99])
def test_information_of_a_subsampled_step_agrees_with_slow_quadrature(rate, noise):
    fast = event_information(poisson(rate, noise))
    assert fast == pytest.approx(slow_information(rate, noise), rel=1e-5, abs=1e-12)
    assert fast <= rate / (2 * noise**2)


def test_information_of_gaussian_events():
    # ρ of zero-concentrated privacy: T / (2σ²).
    assert event_information(dp.GaussianDpEvent(0.5)) == 2.0
    assert event_information(poisson(1.0, 2.0, 8)) == 1.0
    both = dp.ComposedDpEvent([dp.GaussianDpEvent(1.0), dp.GaussianDpEvent(2.0)])
    assert event_information(both) == 0.625
    assert event_information(dp.NoOpDpEvent()) == 0.0
    assert event_information(poisson(0.0, 1.0, 5)) == 0.0
    assert event_information(dp.GaussianDpEvent(0.0)) == math.inf
    assert event_information(dp.NonPrivateDpEvent()) == math.inf


@pytest.mark.parametrize(("rate", "noise"), [(0.01, 0.7), (0.1, 1.0), (0.5, 2.0), (0.3, 0.02)])
def test_information_is_never_above_the_accountants_order_two(rate, noise):
    accountant = RdpAccountant([2.0]).compose(poisson(rate, noise))
    information = event_information(poisson(rate, noise))
    assert 0 < information <= accountant.rdp[0] * (1 + 1e-9)


def slow_replacement(rate, noise):
    """log ∫ p′²/p for one-dimensional mixtures with opposite means, on a fine grid."""
    x, width = np.linspace(-1 - 12 * noise, 1 + 12 * noise, 100_001, retstep=True)

    def log_mixture(mean):
        parts = [math.log1p(-rate) + norm.logpdf(x, 0, noise)]
        parts.append(math.log(rate) + norm.logpdf(x, mean, noise))
        return np.logaddexp(*parts)

    logs = 2 * log_mixture(-1.0) - log_mixture(1.0)
    return math.log(width) + np.logaddexp.reduce(logs)


@pytest.mark.parametrize("noise", [0.3, 0.7, 1.0, 3.0])
@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.99])
def test_replacement_divergence_is_above_that_of_the_opposite_pair(rate, noise):
    fast = event_replacement_divergence(poisson(rate, noise))
    assert fast >= slow_replacement(rate, noise) * (1 - 1e-6)
    assert fast <= 4 / noise**2


@pytest.mark.parametrize("noise", [0.3, 0.7, 1.0, 3.0])
@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5])
def test_replacement_divergence_is_below_the_weak_triangle_inequality(rate, noise):
    event = poisson(rate, noise)
    third, fourth = RdpAccountant([3.0, 4.0]).compose(event).rdp
    assert event_replacement_divergence(event) < 4 / 3 * third + fourth


@pytest.mark.parametrize("seed", range(5))
def test_replacement_divergence_holds_for_other_pairs_in_the_plane(seed):
    """Contributions anywhere in the unit disc, by integration over the plane."""
    rng = np.random.default_rng(seed)
    first, second = (v / max(1.0, np.linalg.norm(v)) for v in rng.normal(size=(2, 2)))
    rate, noise = rng.uniform(0.05, 0.95), rng.uniform(0.4, 2.0)
    axis, width = np.linspace(-1 - 9 * noise, 1 + 9 * noise, 601, retstep=True)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1)

    def mixture(mean):
        def density(centre):
            squares = ((grid - centre) ** 2).sum(axis=-1)
            return np.exp(-squares / (2 * noise**2)) / (2 * math.pi * noise**2)

        return (1 - rate) * density(np.zeros(2)) + rate * density(mean)

    ratio = mixture(second) ** 2 / np.maximum(mixture(first), 1e-300)
    exact = math.log(ratio.sum() * width**2)
    assert exact <= event_replacement_divergence(poisson(rate, noise)) * (1 + 1e-6)


def test_replacement_divergence_of_gaussian_events():
    # Sensitivity 2 instead of 1: order/(2σ²) · 4 = 4/σ².
    assert event_replacement_divergence(dp.GaussianDpEvent(2.0)) == 1.0
    assert event_replacement_divergence(poisson(1.0, 2.0, 3)) == 3.0
    assert event_replacement_divergence(poisson(0.5, 0.01)) == pytest.approx(4e4)
    assert event_replacement_divergence(dp.NonPrivateDpEvent()) == math.inf
    assert event_replacement_divergence(dp.NoOpDpEvent()) == 0.0


def test_other_events_go_through_their_renyi_guarantee():
    # zCDP: ε_α = ρ α, so the weak triangle gives (4/3) 3ρ + 4ρ, as for a Gaussian of the same ρ.
    assert event_replacement_divergence(dp.ZCDpEvent(0.125)) == pytest.approx(1.0)
    assert event_information(dp.ZCDpEvent(0.125)) == pytest.approx(0.25)
    laplace = dp.ComposedDpEvent([dp.LaplaceDpEvent(1.0), dp.GaussianDpEvent(1.0)])
    assert gaussian_steps(laplace) is None
    assert 0 < event_information(laplace) < event_replacement_divergence(laplace) < math.inf


def test_nested_events_are_flattened():
    inner = dp.SelfComposedDpEvent(dp.GaussianDpEvent(2.0), 4)
    event = dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.1, inner), 7)
    # Four answers with noise 2 on one sample are one with noise 1.
    assert gaussian_steps(event) == [GaussianSteps(0.1, 1.0, 7)]


def test_an_event_without_a_guarantee_of_this_kind_is_refused():
    event = dp.SampledWithoutReplacementDpEvent(10, 2, dp.GaussianDpEvent(1.0))
    for bound in (event_information, event_replacement_divergence):
        with pytest.raises(InputError, match="SampledWithoutReplacement"):
            bound(event)
