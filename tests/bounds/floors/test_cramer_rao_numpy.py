"""The Cramér–Rao floor from arrays: closed forms, least squares that reach it, ranks, laws."""

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.bounds.floors import (
    ErrorUnit,
    FloorBinds,
    Probing,
    cramer_rao_from_jacobian,
    cramer_rao_from_products,
    fisher_floor,
    fisher_leakage,
)
from exhume.protocol.errors import InputError


def with_spectrum(singular, outputs, seed=0):
    """A matrix (outputs, len(singular)) with these singular values, in general position."""
    rng = np.random.default_rng(seed)
    inputs = len(singular)
    left = np.linalg.qr(rng.normal(size=(outputs, inputs)))[0]
    right = np.linalg.qr(rng.normal(size=(inputs, inputs)))[0]
    return (left * singular) @ right.T


def estimate(jacobian, noise=1.0, **options):
    return cramer_rao_from_products(
        lambda rows: rows @ jacobian.T,
        lambda rows: rows @ jacobian,
        noise,
        shape=jacobian.shape,
        **options,
    )


def test_closed_form_of_a_diagonal():
    floor = cramer_rao_from_jacobian(np.diag([2.0, 1.0, 0.5]), 0.3)
    # 0.09 (1/4 + 1 + 4) / 3
    assert floor.value == pytest.approx(0.1575)
    assert floor.identifiable_value == floor.value
    assert (floor.unit, floor.binds) == (ErrorUnit.MSE, FloorBinds.UNBIASED)
    assert (floor.unidentifiable, floor.standard_error) == (0, None)


def test_noise_of_its_own_for_each_output():
    rng = np.random.default_rng(1)
    jacobian, noise = rng.normal(size=(9, 4)), rng.uniform(0.1, 2.0, size=9)
    by_hand = np.trace(np.linalg.inv(jacobian.T @ np.diag(noise**-2) @ jacobian)) / 4
    assert cramer_rao_from_jacobian(jacobian, noise).value == pytest.approx(by_hand)
    assert estimate(jacobian, noise, probing=Probing(probes=4000)).value == pytest.approx(
        by_hand, rel=0.05
    )


def squared_errors_of_least_squares(jacobian, noise, repeats, seed):
    """The mean squared error per coordinate of weighted least squares, one a repeat."""
    rng = np.random.default_rng(seed)
    record = rng.normal(size=jacobian.shape[1])
    released = jacobian @ record + noise * rng.normal(size=(repeats, len(jacobian)))
    weighted = np.linalg.pinv(jacobian / noise[:, None])
    return (((released / noise) @ weighted.T - record) ** 2).mean(axis=1)


def test_least_squares_reaches_the_floor_and_a_wrong_noise_is_noticed():
    rng = np.random.default_rng(2)
    jacobian, noise = rng.normal(size=(30, 6)), rng.uniform(0.5, 1.5, size=30)
    errors = squared_errors_of_least_squares(jacobian, noise, repeats=20_000, seed=3)
    standard_error = errors.std(ddof=1) / math.sqrt(len(errors))

    def deviation(assumed_noise):
        floor = cramer_rao_from_jacobian(jacobian, assumed_noise).value
        return (errors.mean() - floor) / standard_error

    assert abs(deviation(noise)) < 3.5
    assert deviation(0.9 * noise) > 10
    assert deviation(1.1 * noise) < -10


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rank_deficiency_is_counted_and_makes_the_floor_infinite(dtype):
    singular = np.array([3.0, 2.0, 1.0, 0.0, 0.0])
    floor = cramer_rao_from_jacobian(with_spectrum(singular, 40).astype(dtype), 1.0)
    assert floor.value == math.inf
    assert floor.unidentifiable == 2
    assert floor.identifiable_value == pytest.approx((1 / 9 + 1 / 4 + 1) / 5, rel=1e-5)
    assert "2 of 5 directions" in floor.note


def test_more_unknowns_than_outputs_and_a_constant_release():
    assert cramer_rao_from_jacobian(np.ones((2, 5)), 1.0).unidentifiable == 4
    nothing = cramer_rao_from_jacobian(np.zeros((3, 2)), 1.0)
    assert (nothing.value, nothing.unidentifiable) == (math.inf, 2)
    assert estimate(np.ones((2, 5))).value == math.inf
    assert "at least 3 of 5" in estimate(np.ones((2, 5))).note
    assert estimate(np.zeros((3, 2))).value == math.inf


def test_a_small_but_real_direction_is_not_called_lost():
    singular = np.array([1.0, 1e-5])
    exact = cramer_rao_from_jacobian(with_spectrum(singular, 50), 1.0)
    assert exact.unidentifiable == 0
    assert exact.value == pytest.approx((1 + 1e10) / 2, rel=1e-6)
    assert (
        cramer_rao_from_jacobian(
            with_spectrum(singular, 50), 1.0, rank_tolerance=1e-4
        ).unidentifiable
        == 1
    )


SPECTRA = {
    "flat": np.ones(60),
    "well conditioned": np.linspace(0.5, 1.5, 60),
    "decaying": np.geomspace(1.0, 1e-2, 60),
    "one small": np.r_[np.linspace(0.5, 1.5, 59), 1e-3],
}


@pytest.mark.parametrize("name", SPECTRA)
def test_the_estimate_agrees_with_the_exact_floor(name):
    jacobian = with_spectrum(SPECTRA[name], 150)
    exact = cramer_rao_from_jacobian(jacobian, 0.7).value
    floor = estimate(jacobian, 0.7, probing=Probing(probes=200), rng=5)
    assert abs(floor.value - exact) < 4 * floor.standard_error + 2e-3 * exact
    assert floor.shortfall < 1e-3
    assert floor.binds is FloorBinds.UNBIASED


@pytest.mark.parametrize("name", SPECTRA)
def test_stopping_early_only_lowers_each_probe(name):
    jacobian = with_spectrum(SPECTRA[name], 150)
    inverse = np.linalg.inv(jacobian.T @ jacobian)
    values = [
        estimate(jacobian, probing=Probing(probes=20, steps=k, accuracy=0.0), rng=6).value
        for k in (1, 2, 4, 8, 16, 32, 60)
    ]
    signs = np.random.default_rng(6).choice([-1.0, 1.0], size=(20, 60))
    truth = float(np.einsum("pi,ij,pj->p", signs, inverse, signs).mean() / 60)
    assert np.all(np.diff(values) >= -1e-9 * truth)
    assert max(values) <= truth * (1 + 1e-7)
    assert values[-1] == pytest.approx(truth, rel=1e-6)


def test_the_shortfall_shows_when_too_few_steps_were_taken():
    jacobian = with_spectrum(np.geomspace(1.0, 1e-3, 60), 150)
    assert estimate(jacobian, probing=Probing(steps=10)).shortfall > 1
    assert estimate(jacobian, probing=Probing(steps=60)).shortfall < 1e-3


def test_the_standard_error_covers():
    jacobian = with_spectrum(np.geomspace(1.0, 0.1, 30), 60)
    exact = cramer_rao_from_jacobian(jacobian, 1.0).value
    floors = [estimate(jacobian, probing=Probing(probes=30), rng=seed) for seed in range(200)]
    scores = np.array([(f.value - exact) / f.standard_error for f in floors])
    # 95 % of 200 is 190; a binomial deviation of that is 3. Student's t widens it a little.
    assert (np.abs(scores) < 1.96).sum() > 175
    assert (np.abs(scores) < 1.0).sum() < 165
    # One-sided limits hold at least as often as they say, less the same play.
    assert sum(f.lower_limit() <= exact for f in floors) > 185


@pytest.mark.parametrize("lost", [1, 5])
def test_the_estimate_notices_lost_directions(lost):
    jacobian = with_spectrum(np.r_[np.linspace(0.5, 1.5, 40 - lost), np.zeros(lost)], 100)
    floor = estimate(jacobian)
    assert floor.value == math.inf
    assert "at least 1 of 40" in floor.note


def test_probes_in_several_batches_give_the_same_estimate():
    jacobian = with_spectrum(np.linspace(0.5, 1.5, 60), 150)
    whole = estimate(jacobian, rng=7)
    # One probe of at most 60 steps takes 8 (60·60 + 60² + 4·210) bytes.
    parts = estimate(jacobian, rng=7, memory_limit=3 * 8 * (2 * 3600 + 840))
    assert parts.value == pytest.approx(whole.value, rel=1e-3)
    with pytest.raises(InputError, match="memory limit"):
        estimate(jacobian, memory_limit=1000)


matrices = st.integers(0, 10_000).map(lambda seed: np.random.default_rng(seed).normal(size=(12, 4)))


@settings(deadline=None, max_examples=40)
@given(jacobian=matrices, noise=st.floats(0.01, 10), factor=st.floats(1.01, 10))
def test_more_noise_raises_the_floor_by_its_square(jacobian, noise, factor):
    low = cramer_rao_from_jacobian(jacobian, noise).value
    high = cramer_rao_from_jacobian(jacobian, factor * noise).value
    assert high > low
    assert high == pytest.approx(factor**2 * low, rel=1e-9)


@settings(deadline=None, max_examples=40)
@given(jacobian=matrices, kept=st.integers(4, 12), noise=st.floats(0.01, 10))
def test_more_outputs_never_raise_the_floor(jacobian, kept, noise):
    part = cramer_rao_from_jacobian(jacobian[:kept], noise).value
    assert cramer_rao_from_jacobian(jacobian, noise).value <= part * (1 + 1e-9)


@settings(deadline=None, max_examples=40)
@given(jacobian=matrices, noise=st.floats(0.01, 10))
def test_fisher_leakage_is_never_above_cramer_rao(jacobian, noise):
    leakage = fisher_leakage(jacobian, noise)
    assert leakage == pytest.approx(np.trace(jacobian.T @ jacobian) / noise**2 / 4)
    assert fisher_floor(leakage).value <= cramer_rao_from_jacobian(jacobian, noise).value * (
        1 + 1e-12
    )


@pytest.mark.parametrize(
    ("jacobian", "noise", "message"),
    [
        ([1.0, 2.0], 1.0, "shape"),
        (np.empty((0, 3)), 1.0, "shape"),
        ([[1.0, math.nan]], 1.0, "NaN"),
        ([[1.0 + 1j]], 1.0, "real"),
        ([[1.0]], 0.0, "above 0"),
        ([[1.0]], -1.0, "above 0"),
        ([[1.0]], math.inf, "infinite"),
        ([[1.0]], [1.0, 2.0], "one per output"),
    ],
)
def test_wrong_input_is_named(jacobian, noise, message):
    with pytest.raises(InputError, match=message):
        cramer_rao_from_jacobian(jacobian, noise)


@pytest.mark.parametrize(
    "fields", [{"probes": 1}, {"steps": 0}, {"accuracy": -1.0}, {"accuracy": math.nan}]
)
def test_wrong_probing_is_refused(fields):
    with pytest.raises(InputError, match=next(iter(fields))):
        Probing(**fields)


def test_importing_needs_neither_torch_nor_scipy_nor_an_accountant():
    code = (
        "import sys; import exhume.bounds.floors, exhume.bounds.floors.jacobian; "
        "print([m for m in ('torch', 'scipy', 'dp_accounting') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stderr
