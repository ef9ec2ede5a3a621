"""The blind guess: chosen on the pool alone, and as well as a search by hand would."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from exhume.metrics import (
    MSE,
    NCC,
    PSNR,
    RMSE,
    Metric,
    best_constant_guess,
    clopper_pearson,
    cost_tables,
    kappa_of_constant,
    nearest_neighbours,
)
from exhume.protocol.errors import InputError


def reference_hits(pool: np.ndarray, metric: Metric, eta: float | None) -> np.ndarray:
    """How many other records each record of the pool hits; last, how many the others' mean hits."""
    n = len(pool)
    hits = np.zeros(n + 1, dtype=int)
    for i in range(n):
        others = [j for j in range(n) if j != i]
        scores = np.array([metric(pool[[i]], pool[[j]])[0] for j in others])
        limit = (scores.max() if metric.higher_is_better else scores.min()) if eta is None else eta
        hits[others] += metric.reaches(scores, limit)
        mean = (pool.sum(axis=0) - pool[i]) / (n - 1)
        hits[n] += int(metric.reaches(metric(pool[[i]], mean[None])[0], limit))
    return hits


@pytest.mark.parametrize("metric", [MSE(), RMSE(), NCC()], ids=lambda metric: metric.name)
@pytest.mark.parametrize("eta", [None, 0.5, 1.0])
@pytest.mark.parametrize("entries", [None, 50])
def test_against_the_reference(
    metric: Metric, eta: float | None, entries: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if entries is not None:
        monkeypatch.setattr(cost_tables, "TABLE_ENTRIES", entries)
    pool = np.random.default_rng(0).normal(size=(40, 3))
    hits = reference_hits(pool, metric, eta)
    guess = best_constant_guess(pool, metric, eta=eta)
    of_mean, best = int(hits[-1]), int(np.argmax(hits[:-1]))
    if of_mean * 39 >= hits[best] * 40:
        assert (guess.index, guess.successes, guess.trials) == (-1, of_mean, 40)
        np.testing.assert_allclose(guess.record, pool.mean(axis=0))
    else:
        assert (guess.index, guess.successes, guess.trials) == (best, hits[best], 39)
        np.testing.assert_array_equal(guess.record, pool[best])


@given(
    hnp.arrays(np.float64, (8, 2), elements=st.integers(0, 3)), st.sampled_from([None, 0.5, 2.0])
)
@settings(deadline=None, max_examples=100)
def test_ties_and_duplicates(pool: np.ndarray, eta: float | None) -> None:
    # Distances of whole numbers hit eta exactly, which a matrix product alone could miss.
    guess = best_constant_guess(pool, MSE(), eta=eta)
    hits = reference_hits(pool, MSE(), eta)
    rates = np.append(hits[:-1] / 7, hits[-1] / 8)
    assert guess.successes / guess.trials == rates.max()


def test_close_calls_at_the_threshold_are_exact() -> None:
    pool = np.array([[1e6], [1e6 + 0.3], [1e6 + 0.6]])
    eta = MSE()(pool[[0]], pool[[1]])[0]
    assert (
        best_constant_guess(pool, MSE(), eta=float(eta)).successes
        == reference_hits(pool, MSE(), float(eta)).max()
    )


def test_a_hub_is_guessed() -> None:
    angles = np.linspace(0, 2 * np.pi, 5, endpoint=False)
    ring = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    pool = np.concatenate(
        [ring * [[1.0], [1.01], [1.02], [1.03], [1.04]], [[0.0, 0.0], [0.1, 9.0]]]
    )
    guess = best_constant_guess(pool, MSE())
    assert guess.index == 5
    assert (guess.successes, guess.trials) == (5, 6)


def test_the_mean_is_guessed_where_all_are_far_apart() -> None:
    # Orthogonal records: the mean is nearer to each than any other record is.
    pool = np.eye(10)
    guess = best_constant_guess(pool, MSE())
    assert guess.index == -1
    assert (guess.successes, guess.trials) == (10, 10)
    np.testing.assert_allclose(guess.record, 0.1)


def test_fewer_judges_than_records() -> None:
    pool = np.random.default_rng(1).normal(size=(100, 4))
    guess = best_constant_guess(pool, MSE(), judges=10)
    assert guess.trials in (9, 10)
    with pytest.raises(InputError, match="judges must be at least 2, got 1"):
        best_constant_guess(pool, MSE(), judges=1)


def test_the_choice_flatters_itself_and_the_targets_do_not() -> None:
    rng = np.random.default_rng(2)
    pool, targets = rng.normal(size=(200, 6)), rng.normal(size=(300, 6))
    guess = best_constant_guess(pool, MSE())
    limits = nearest_neighbours(targets, pool, MSE()).nearest_distance
    hits = kappa_of_constant(guess.record, targets, limits, MSE())
    held_out = clopper_pearson(int(hits.sum()), len(hits), confidence=0.999)
    assert held_out.low <= guess.successes / guess.trials
    assert hits.mean() < 0.2


def test_kappa_of_a_known_law() -> None:
    # z uniform on [0, 1], guess 1/2, |z − 1/2| <= 0.1: kappa = 0.2 exactly.
    targets = np.random.default_rng(3).uniform(size=(4000, 1))
    hits = kappa_of_constant(np.array([0.5]), targets, 0.1, RMSE())
    found = clopper_pearson(int(hits.sum()), 4000, confidence=0.999)
    assert found.low < 0.2 < found.high
    twice = kappa_of_constant(np.array([0.5]), targets, 0.11, RMSE())
    assert clopper_pearson(int(twice.sum()), 4000, confidence=0.999).rate > found.rate


def test_kappa_turns_round_for_a_similarity() -> None:
    targets = np.array([[0.0, 0.0], [1.0, 1.0]])
    metric = PSNR(value_range=(0, 1))
    assert kappa_of_constant(np.array([0.1, 0.1]), targets, 19.0, metric).tolist() == [True, False]


@pytest.mark.parametrize(
    ("guess", "thresholds", "message"),
    [
        (np.zeros(3), 0.1, r"the guess has shape \(3,\), a target \(2,\)"),
        (np.zeros(2), np.zeros(5), r"thresholds need shape \(4,\)"),
    ],
)
def test_kappa_of_wrong_shapes(guess: np.ndarray, thresholds: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        kappa_of_constant(guess, np.zeros((4, 2)), thresholds, MSE())  # type: ignore[arg-type]


def test_a_pool_too_small_or_out_of_range() -> None:
    with pytest.raises(InputError, match="needs a pool of 2 records, got 1"):
        best_constant_guess(np.zeros((1, 2)), MSE())
    with pytest.raises(InputError, match="pool: 2 at index"):
        best_constant_guess(np.full((3, 2), 2.0), MSE(value_range=(0, 1)))
