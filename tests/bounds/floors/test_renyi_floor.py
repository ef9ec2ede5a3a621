"""Guo et al. 2022: values, the unbiased estimators it must not beat, and what would be unsound."""

import math

import dp_accounting as dp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.bounds.floors import (
    FloorBinds,
    fisher_floor,
    fisher_leakage,
    renyi_floor,
    renyi_floor_of_event,
)
from exhume.protocol.errors import InputError


def test_golden_values():
    # .25 / (e - 1)
    assert renyi_floor(1.0).value == pytest.approx(0.14549417, rel=1e-7)
    assert renyi_floor(1.0).binds is FloorBinds.UNBIASED
    assert renyi_floor(1.0, ranges=2.0).value == pytest.approx(4 * 0.14549417, rel=1e-7)
    # Σ range²/4 over d = (1 + 9)/8
    assert renyi_floor(1.0, ranges=[1.0, 3.0]).value == pytest.approx(1.25 / (math.e - 1))
    assert renyi_floor(1e-9).value == pytest.approx(2.5e8)
    assert renyi_floor(0.0).value == math.inf
    assert renyi_floor(1e6).value == 0.0
    assert renyi_floor(math.inf).value == 0.0


def test_of_events():
    # σ = 2, one step: ε₂ = 4/σ² = 1.
    assert renyi_floor_of_event(dp.GaussianDpEvent(2.0)).value == renyi_floor(1.0).value
    assert renyi_floor_of_event(dp.NonPrivateDpEvent()).value == 0.0
    assert renyi_floor_of_event(dp.NoOpDpEvent()).value == math.inf


@settings(deadline=None, max_examples=50)
@given(low=st.floats(0.001, 20), more=st.floats(0.001, 20), width=st.floats(0.1, 100))
def test_falls_with_the_divergence(low, more, width):
    assert renyi_floor(low + more, ranges=width).value < renyi_floor(low, ranges=width).value


@settings(deadline=None, max_examples=50)
@given(noise=st.floats(0.05, 50))
def test_an_unbiased_attack_that_exists_is_above(noise):
    """x in [0, 1] released with noise: reading it off is unbiased, with variance noise²."""
    floor = renyi_floor(1 / noise**2).value
    assert floor <= noise**2
    # With much noise the bound is a quarter of what is reached: z′ is only half the range away.
    if noise > 20:
        assert floor == pytest.approx(noise**2 / 4, rel=1e-2)


def least_unbiased_variance(means, values, noise, at):
    """The least variance at point ``at`` of estimators unbiased on a finite domain (Barankin 1949).

    Record ``values[i]`` is released as N(means[i], noise² I).
    """
    others = [i for i in range(len(values)) if i != at]
    shifts = (means[others] - means[at]) / noise
    ratios = np.expm1(shifts @ shifts.T)
    steps = values[others] - values[at]
    return float(steps @ np.linalg.solve(ratios, steps))


def test_the_guarantee_of_a_record_there_or_not_is_no_substitute_for_two_records():
    """Three records whose clipped contributions lie 120° apart on the unit circle, noise 1."""
    angles = np.deg2rad([60.0, 180.0, 300.0])
    means = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    values = np.array([0.0, 0.5, 1.0])
    reached = least_unbiased_variance(means, values, 1.0, at=1)
    # By hand: ½ / (e³ - e^1.5).
    assert reached == pytest.approx(0.5 / (math.exp(3) - math.exp(1.5)))
    assert renyi_floor_of_event(dp.GaussianDpEvent(1.0)).value <= reached
    there_or_not = 1.0  # order 2 / (2σ²)
    assert renyi_floor(there_or_not).value > reached


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10_000), noise=st.floats(0.5, 5))
def test_no_unbiased_estimator_on_three_points_is_below(seed, noise):
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(3, 3))
    means /= np.maximum(1.0, np.linalg.norm(means, axis=1, keepdims=True))
    values = np.array([0.0, 0.5, 1.0])
    floor = renyi_floor_of_event(dp.GaussianDpEvent(noise)).value
    for point in range(3):
        reached = least_unbiased_variance(means, values, noise, at=point)
        assert floor <= reached * (1 + 1e-9)


def test_a_biased_attack_goes_below():
    """Why ``binds`` is said: answering .5 errs by at most .25."""
    assert renyi_floor(0.1).value > 0.25


def test_fisher_leakage():
    jacobian = np.array([[1.0, 2.0], [0.0, 2.0]])
    assert fisher_leakage(jacobian, 1.0) == 4.5
    assert fisher_leakage(jacobian, [1.0, 2.0]) == 3.0
    assert fisher_floor(4.0).value == 0.25
    assert fisher_floor(4.0).binds is FloorBinds.UNBIASED
    assert fisher_floor(0.0).value == math.inf
    assert fisher_floor(math.inf).value == 0.0


@pytest.mark.parametrize("value", [-0.1, math.nan])
def test_wrong_amounts_are_refused(value):
    with pytest.raises(InputError, match="epsilon_two"):
        renyi_floor(value)
    with pytest.raises(InputError, match="leakage"):
        fisher_floor(value)


@pytest.mark.parametrize("ranges", [0.0, -1.0, math.inf, math.nan, [], [1.0, 0.0], [[1.0]]])
def test_wrong_ranges_are_refused(ranges):
    with pytest.raises(InputError, match="ranges"):
        renyi_floor(1.0, ranges=ranges)
