"""Assignment of a batch's candidates to its records."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from exhume.metrics import MSE, NCC, PSNR, Metric, match, nearest_neighbours, score

VALUES = st.integers(-20, 20)


@pytest.mark.parametrize("metric", [MSE(), NCC()])
@given(
    hnp.arrays(np.float64, (4, 3), elements=VALUES), hnp.arrays(np.float64, (4, 3), elements=VALUES)
)
@settings(deadline=None, max_examples=50)
def test_no_assignment_is_better(metric: Metric, truth: np.ndarray, samples: np.ndarray) -> None:
    totals = [metric(truth, samples[list(order)]).sum() for order in permutations(range(4))]
    best = max(totals) if metric.higher_is_better else min(totals)
    found = match(truth, samples, metric)
    np.testing.assert_allclose(found.scores.sum(), best, atol=1e-9)
    assert sorted(found.indices) == [0, 1, 2, 3]


def test_a_shuffled_batch_comes_back_in_order() -> None:
    rng = np.random.default_rng(0)
    truth = rng.uniform(size=(12, 5, 5))
    order = rng.permutation(12)
    found = match(truth, truth[order], PSNR(value_range=(0, 1)))
    assert order[found.indices].tolist() == list(range(12))
    assert (found.scores == 100).all()
    assert found.matched.all()


def test_only_the_first_candidates_count() -> None:
    truth = np.array([[0.0], [1.0]])
    samples = np.array([[0.4], [0.6], [0.0], [1.0]])
    found = match(truth, samples, MSE())
    assert found.indices.tolist() == [0, 1]
    np.testing.assert_allclose(found.scores, [0.16, 0.16])


def test_one_record_is_scored_on_the_first_candidate() -> None:
    assert score(np.array([[0.0]]), np.array([[0.5], [0.0]]), MSE()).tolist() == [0.25]


def test_too_few_candidates_leave_records_unmatched() -> None:
    truth = np.array([[0.0], [5.0], [1.0]])
    found = match(truth, np.array([[1.1], [0.1]]), MSE())
    assert found.indices.tolist() == [1, -1, 0]
    assert found.matched.tolist() == [True, False, True]
    np.testing.assert_allclose(found.scores, [0.01, np.nan, 0.01])
    assert MSE().reaches(found.scores, 1.0).tolist() == [True, False, True]


def test_no_candidates_at_all() -> None:
    found = match(np.zeros((2, 3)), np.zeros((0, 3)), MSE())
    assert found.indices.tolist() == [-1, -1]
    assert np.isnan(found.scores).all()


def test_scores_are_the_metrics_own_to_the_digit() -> None:
    # The nearest pool record, handed back as a reconstruction, must meet its own threshold.
    rng = np.random.default_rng(1)
    truth, pool = rng.normal(size=(20, 30)), rng.normal(size=(50, 30))
    oracle = nearest_neighbours(truth, pool, MSE())
    for i, index in enumerate(oracle.nearest_index):
        assert score(truth[[i]], pool[[index]], MSE())[0] == oracle.nearest_distance[i]


def test_a_match_cannot_be_changed() -> None:
    found = match(np.zeros((1, 2)), np.zeros((1, 2)), MSE())
    with pytest.raises(ValueError, match="read-only"):
        found.scores[0] = 1.0
