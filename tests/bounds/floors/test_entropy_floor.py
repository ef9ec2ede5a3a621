"""Entropy and Van Trees floors against the exact posterior of a linear-Gaussian release."""

import math

import dp_accounting as dp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.bounds.floors import (
    ErrorUnit,
    FloorBinds,
    channel_information,
    cramer_rao_from_jacobian,
    entropy_floor,
    event_information,
    gaussian_entropy_power,
    linear_channel_information,
    uniform_entropy_power,
    van_trees_from_jacobians,
)
from exhume.protocol.errors import InputError


def posterior_mean_error(jacobian, noise, covariance):
    """The least mean squared error per coordinate that any attack reaches: the posterior mean's."""
    precision = np.linalg.inv(covariance) + jacobian.T @ np.diag(noise**-2.0) @ jacobian
    return float(np.trace(np.linalg.inv(precision)) / len(covariance))


def a_case(seed):
    rng = np.random.default_rng(seed)
    inputs, outputs = rng.integers(1, 6), rng.integers(1, 10)
    root = rng.normal(size=(inputs, inputs))
    covariance = root @ root.T + 0.1 * np.eye(inputs)
    return rng.normal(size=(outputs, inputs)), rng.uniform(0.1, 3.0, size=outputs), covariance


cases = st.integers(0, 100_000).map(a_case)


@settings(deadline=None, max_examples=100)
@given(case=cases)
def test_never_above_the_posterior_mean(case):
    jacobian, noise, covariance = case
    information = linear_channel_information(jacobian, noise, prior_covariance=covariance)
    floor = entropy_floor(
        information,
        dimension=len(covariance),
        entropy_power=gaussian_entropy_power(covariance, dimension=len(covariance)),
    )
    assert floor.binds is FloorBinds.ALL
    assert floor.value <= posterior_mean_error(jacobian, noise, covariance) * (1 + 1e-9)


@pytest.mark.parametrize(("scale", "noise", "std"), [(1.0, 1.0, 1.0), (3.0, 0.5, 2.0)])
def test_reached_where_all_directions_are_alike(scale, noise, std):
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(7, 4)))[0]
    information = linear_channel_information(scale * rotation, noise, prior_covariance=std**2)
    # Four independent channels: 4 · ½ log(1 + (scale·std/noise)²).
    assert information == pytest.approx(2 * math.log1p((scale * std / noise) ** 2))
    floor = entropy_floor(
        information, dimension=4, entropy_power=gaussian_entropy_power(std**2, dimension=4)
    )
    exact = posterior_mean_error(scale * rotation, np.full(7, noise), std**2 * np.eye(4))
    assert floor.value == pytest.approx(exact)
    relative = floor.relative_to(std**2)
    assert relative.unit is ErrorUnit.RELATIVE_MSE
    assert relative.value == pytest.approx(math.exp(-2 * information / 4))


@settings(deadline=None, max_examples=50)
@given(case=cases)
def test_van_trees_is_the_posterior_means_error_and_above_entropy(case):
    jacobian, noise, covariance = case
    floor = van_trees_from_jacobians(jacobian, noise, prior_covariance=covariance)
    exact = posterior_mean_error(jacobian, noise, covariance)
    assert floor.value == pytest.approx(exact, rel=1e-6)
    assert floor.binds is FloorBinds.ALL
    assert floor.value <= cramer_rao_from_jacobian(jacobian, noise).value * (1 + 1e-6)


def test_van_trees_of_a_curved_release_is_below_the_best_attack():
    """x ~ N(0, 1), released as x + 0.5 sin(3x) with noise 0.5: the posterior mean by quadrature."""
    noise, grid = 0.5, np.linspace(-6, 6, 4001)
    release = grid + 0.5 * np.sin(3 * grid)
    rng = np.random.default_rng(0)
    records = rng.normal(size=4000)
    seen = records + 0.5 * np.sin(3 * records) + noise * rng.normal(size=4000)
    logs = -0.5 * grid**2 - 0.5 * ((seen[:, None] - release) / noise) ** 2
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    means = (weights * grid).sum(axis=1) / weights.sum(axis=1)
    reached = ((means - records) ** 2).mean()
    jacobians = (1 + 1.5 * np.cos(3 * records)).reshape(-1, 1, 1)
    floor = van_trees_from_jacobians(jacobians, noise, prior_covariance=1.0)
    assert floor.lower_limit() < reached
    # The Fisher information's mean is 1 + 1.5²/2 + 3 e^-4.5 (over σ²); e^-4.5 from E cos 3x.
    mean = 1 + 1.125 * (1 + math.exp(-18)) + 3 * math.exp(-4.5)
    exact = 1 / (mean / noise**2 + 1)
    assert abs(floor.value - exact) < 4 * floor.standard_error
    # The Jacobian at one flat record alone would be no floor at all.
    assert van_trees_from_jacobians([[1e-3]], noise, prior_covariance=1.0).value > reached


def test_the_jackknife_takes_the_bias_out_and_gives_the_error():
    rng = np.random.default_rng(1)
    # J² is exponential with mean 1; the floor for prior variance 1 and noise 1 is 1/2.
    floors = [
        van_trees_from_jacobians(
            np.sqrt(rng.exponential(size=(10, 1, 1))), 1.0, prior_covariance=1.0
        )
        for _ in range(2000)
    ]
    values = np.array([f.value for f in floors])
    play = values.std() / math.sqrt(len(values))
    assert abs(values.mean() - 0.5) < 0.25 * 0.0125 + 4 * play  # first-order bias is 1/80
    errors = np.mean([f.standard_error for f in floors])
    assert errors == pytest.approx(values.std(), rel=0.15)


def test_entropy_powers():
    # 1/(2πe)
    assert uniform_entropy_power(0.0, 1.0) == pytest.approx(0.058549832, rel=1e-7)
    assert uniform_entropy_power(-1.0, 1.0) == pytest.approx(4 * 0.058549832, rel=1e-7)
    assert gaussian_entropy_power([1.0, 4.0], dimension=2) == pytest.approx(2.0)
    correlated = [[1.0, 0.6], [0.6, 1.0]]
    assert gaussian_entropy_power(correlated, dimension=2) == pytest.approx(0.8)


def test_a_uniform_prior_known_blindly():
    """Without information the floor is below the prior's variance, 1/12."""
    blind = entropy_floor(0.0, dimension=5, entropy_power=uniform_entropy_power(0.0, 1.0))
    assert 0.7 / 12 < blind.value < 1 / 12
    assert entropy_floor(math.inf, dimension=5, entropy_power=1.0).value == 0.0


def test_from_an_event():
    # DP-SGD without sampling, 8 steps of noise 2: ρ = 8/(2·4) = 1 nat; e^(-2/10).
    event = dp.SelfComposedDpEvent(dp.GaussianDpEvent(2.0), 8)
    floor = entropy_floor(event_information(event), dimension=10, entropy_power=1.0)
    assert floor.value == pytest.approx(0.8187308, rel=1e-7)


def test_a_biased_attack_respects_it_where_cramer_rao_is_beaten():
    """Shrinking towards the prior beats Cramér–Rao and not the entropy floor."""
    rng = np.random.default_rng(2)
    records = rng.normal(size=(20_000, 3))
    seen = records + 2.0 * rng.normal(size=records.shape)
    errors = ((seen / 5.0 - records) ** 2).mean(axis=1)  # posterior mean: 1/(1 + 4)
    assert errors.mean() < 0.5 * cramer_rao_from_jacobian(np.eye(3), 2.0).value
    information = linear_channel_information(np.eye(3), 2.0, prior_covariance=1.0)
    floor = entropy_floor(information, dimension=3, entropy_power=1.0).value
    play = errors.std() / math.sqrt(len(errors))
    assert abs(errors.mean() - floor) < 4 * play
    assert abs(errors.mean() - 0.9 * floor) > 10 * play


def test_channel_information_bounds_curved_releases_and_equals_linear_ones():
    rng = np.random.default_rng(3)
    jacobian, noise = rng.normal(size=(5, 3)), rng.uniform(0.5, 2.0, size=5)
    linear = linear_channel_information(jacobian, noise, prior_covariance=2.0)
    assert channel_information(2.0 * jacobian @ jacobian.T, noise) == pytest.approx(linear)
    # A sign: variance 1, at most log 2 nats, exactly I(±1 + noise); ½ log(1 + 1/σ²) is above.
    grid = np.linspace(-9, 9, 20_001)
    density = 0.5 * sum(
        np.exp(-0.5 * (grid - sign) ** 2) / math.sqrt(2 * math.pi) for sign in (-1, 1)
    )
    entropy = -(density * np.log(density)).sum() * (grid[1] - grid[0])
    exact = entropy - 0.5 * math.log(2 * math.pi * math.e)
    assert exact < channel_information([[1.0]], 1.0) == pytest.approx(0.5 * math.log(2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: entropy_floor(-1.0, dimension=1, entropy_power=1.0), "information"),
        (lambda: entropy_floor(math.nan, dimension=1, entropy_power=1.0), "information"),
        (lambda: entropy_floor(1.0, dimension=0, entropy_power=1.0), "dimension"),
        (lambda: entropy_floor(1.0, dimension=1, entropy_power=0.0), "entropy_power"),
        (lambda: uniform_entropy_power(1.0, 1.0), "low < high"),
        (lambda: uniform_entropy_power(0.0, math.inf), "low < high"),
        (lambda: gaussian_entropy_power(-1.0, dimension=2), "positive definite"),
        (lambda: gaussian_entropy_power([[1.0, 2.0], [0.0, 1.0]], dimension=2), "symmetric"),
        (lambda: gaussian_entropy_power([1.0, 2.0, 3.0], dimension=2), "shape"),
        (lambda: channel_information([[1.0, 2.0]], 1.0), "square"),
        (lambda: channel_information([[-1.0]], 1.0), "negative"),
        (lambda: van_trees_from_jacobians([[1.0]], 1.0, prior_covariance=0.0), "prior_cov"),
        (lambda: van_trees_from_jacobians([1.0], 1.0, prior_covariance=1.0), "jacobian"),
    ],
)
def test_wrong_input_is_named(call, message):
    with pytest.raises(InputError, match=message):
        call()
