"""Intervals that hold what they promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.metrics import (
    bootstrap_mean,
    bootstrap_median,
    clopper_pearson,
    clopper_pearson_high,
    clopper_pearson_low,
)
from exhume.protocol.errors import InputError


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        # The binomial tails, summed and inverted by bisection in 40 digits (mpmath 1.3);
        # scipy.stats.binomtest, which finds them by a search, agrees to at least 1e-10.
        (0, 10, 0.0, 0.30849710781876082),
        (10, 10, 0.69150289218123918, 1.0),
        (3, 10, 0.066739511177734467, 0.6524528500599973),
        (97, 100, 0.91482394702571996, 0.99377002846169361),
        (1, 1000, 2.5317487491294043e-5, 0.0055589242798266729),
    ],
)
def test_golden(successes: int, trials: int, low: float, high: float) -> None:
    found = clopper_pearson(successes, trials)
    assert (found.successes, found.trials, found.confidence) == (successes, trials, 0.95)
    np.testing.assert_allclose([found.low, found.high], [low, high], rtol=1e-13)


@given(st.integers(1, 400), st.floats(0, 1), st.sampled_from([0.5, 0.9, 0.95, 0.999]))
@settings(deadline=None, max_examples=40)
def test_scipys_own_interval(trials: int, share: float, confidence: float) -> None:
    from scipy.stats import binomtest

    successes = round(share * trials)
    peer = binomtest(successes, trials)
    found = clopper_pearson(successes, trials, confidence=confidence)
    both = peer.proportion_ci(confidence, method="exact")
    np.testing.assert_allclose([found.low, found.high], both, rtol=1e-7, atol=1e-12)
    at_least = binomtest(successes, trials, alternative="greater").proportion_ci(confidence)
    at_most = binomtest(successes, trials, alternative="less").proportion_ci(confidence)
    low = clopper_pearson_low(successes, trials, confidence=confidence)
    high = clopper_pearson_high(successes, trials, confidence=confidence)
    np.testing.assert_allclose([low, high], [at_least.low, at_most.high], rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("trials", [1, 2, 5, 10, 30, 100])
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_coverage_is_never_below_the_promise(trials: int, confidence: float) -> None:
    """Every outcome counted with its binomial probability, so that chance plays no part."""
    from scipy.stats import binom

    counts = np.arange(trials + 1)
    found = [clopper_pearson(int(k), trials, confidence=confidence) for k in counts]
    low, high = np.array([f.low for f in found]), np.array([f.high for f in found])
    rates = np.concatenate([np.linspace(0, 1, 201), low + 1e-12, high - 1e-12]).clip(0, 1)
    for rate in rates:
        weight = binom.pmf(counts, trials, rate)
        assert weight[(low <= rate) & (rate <= high)].sum() >= confidence - 1e-9
        # Each side on its own: at least this much, and at most this much.
        assert weight[rate < low].sum() <= (1 - confidence) / 2 + 1e-9
        assert weight[rate > high].sum() <= (1 - confidence) / 2 + 1e-9


def test_a_narrower_interval_would_break_the_promise() -> None:
    """The same count rejects limits moved inwards by a fiftieth: the test above has teeth."""
    from scipy.stats import binom

    counts = np.arange(101)
    low = np.array([clopper_pearson_low(int(k), 100) for k in counts])
    moved = low + 0.02 * (counts / 100 - low)
    worst = max(
        binom.pmf(counts, 100, rate)[rate < moved].sum() for rate in np.nextafter(moved[1:], 0)
    )
    assert worst > 0.05
    honest = max(
        binom.pmf(counts, 100, rate)[rate < low].sum() for rate in np.nextafter(low[1:], 0)
    )
    assert honest <= 0.05 + 1e-9


def test_rule_of_three() -> None:
    # Exactly 1 − 0.05^(1/n), about 3 / n.
    for trials in (10, 100, 1000):
        assert clopper_pearson_high(0, trials) == pytest.approx(1 - 0.05 ** (1 / trials), rel=1e-12)
        assert clopper_pearson_low(trials, trials) == pytest.approx(0.05 ** (1 / trials), rel=1e-12)


def test_no_trials_say_nothing() -> None:
    found = clopper_pearson(0, 0)
    assert (found.low, found.high) == (0.0, 1.0)
    assert np.isnan(found.rate)


def test_the_rate() -> None:
    assert clopper_pearson(3, 4).rate == 0.75


@pytest.mark.parametrize("function", [clopper_pearson, clopper_pearson_low, clopper_pearson_high])
def test_wrong_counts_and_levels(function: object) -> None:
    for successes, trials in ((-1, 5), (6, 5), (1, -1)):
        with pytest.raises(InputError, match=f"got {successes} of {trials}"):
            function(successes, trials)  # type: ignore[operator]
    for confidence in (0.0, 1.0, 95.0, float("nan")):
        with pytest.raises(InputError, match="strictly between 0 and 1"):
            function(1, 2, confidence=confidence)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("function", "truth"), [(bootstrap_mean, 1.0), (bootstrap_median, np.log(2))]
)
def test_bootstrap_covers_about_as_often_as_it_says(function: object, truth: float) -> None:
    rng = np.random.default_rng(0)
    inside = 0
    for seed in range(300):
        found = function(  # type: ignore[operator]
            rng.exponential(size=100), seed=seed, confidence=0.9, resamples=300
        )
        inside += found.low <= truth <= found.high
    # 0.9 nominal; skewed values and 100 of them cost a few per cent. Three standard deviations.
    assert 0.9 - 0.09 < inside / 300 < 0.9 + 0.06


def test_bootstrap_of_a_mean_against_the_normal_law() -> None:
    values = np.random.default_rng(1).normal(5.0, 2.0, size=2000)
    found = bootstrap_mean(values, seed=0, resamples=4000)
    error = values.std() / np.sqrt(2000)
    assert found.estimate == pytest.approx(values.mean())
    np.testing.assert_allclose(
        [found.low, found.high], values.mean() + error * np.array([-1.96, 1.96]), atol=0.1 * error
    )


def test_bootstrap_is_seeded_and_independent_of_its_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    from exhume.stats import bootstrap as room

    values = np.random.default_rng(2).normal(size=50)
    first = bootstrap_median(values, seed=3)
    assert bootstrap_median(values, seed=3) == first
    assert bootstrap_median(values, seed=4) != first
    monkeypatch.setattr(room, "_RESAMPLED_ENTRIES", 500)
    assert bootstrap_median(values, seed=3) == first


def test_bootstrap_of_one_value() -> None:
    found = bootstrap_mean(np.array([2.5]), seed=0)
    assert (found.estimate, found.low, found.high) == (2.5, 2.5, 2.5)


@pytest.mark.parametrize(
    ("values", "resamples", "message"),
    [
        (np.empty(0), 1000, "at least one"),
        (np.zeros((2, 2)), 1000, r"shape \(n,\)"),
        (np.array([1.0, np.nan]), 1000, "values has 1 NaN"),
        (np.zeros(3), 10, "resamples must be at least 100"),
    ],
)
def test_bootstrap_of_wrong_values(values: np.ndarray, resamples: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        bootstrap_mean(values, seed=0, resamples=resamples)
