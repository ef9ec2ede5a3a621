"""Intervals over targets: they cover what they should, and no more."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from exhume.stats.differences import Sample, difference, of_correlation, own


def sample(values, unit=1, statistic="mean"):
    return Sample.of(np.asarray(values, dtype=np.float64), unit=unit, statistic=statistic)


def test_a_mean_has_students_interval():
    values = np.array([1.0, 2.0, 4.0, 8.0])
    expected = stats.t.interval(0.95, 3, values.mean(), stats.sem(values))
    found = own(sample(values))
    assert (found.low, found.high) == pytest.approx(expected)


def test_the_same_targets_are_compared_one_by_one():
    hard = np.linspace(1.0, 9.0, 12)
    slightly = hard - 0.1 + 0.01 * np.cos(np.arange(12))
    found = difference(sample(slightly), sample(hard))
    assert -0.12 < found.low < found.high < -0.08
    apart = difference(sample(slightly), sample(np.append(hard, 5.0)))
    assert apart.low < 0 < apart.high, "other targets: their spread counts in full"


def test_targets_of_a_batch_are_one_observation():
    values = np.repeat([1.0, 2.0, 3.0], 10)
    alone, together = own(sample(values)), own(sample(values, unit=10))
    assert together.half > 3 * alone.half
    assert own(sample(values, unit=30)).low == -np.inf, "one batch tells nothing of others"


def test_targets_without_an_answer_do_not_count():
    found = own(sample([1.0, np.nan, 2.0, 4.0, np.nan, np.nan], unit=2))
    assert found.low < (1.0 + 3.0) / 2 < found.high
    assert sample([1.0, np.nan, 2.0, 4.0, np.nan, np.nan], unit=2).units == 2


@pytest.mark.parametrize("statistic", ["mean", "median", "q95"])
def test_it_covers_the_right_value_and_rejects_a_nearby_wrong_one(statistic):
    rng = np.random.default_rng(5)
    truth = {"mean": 1.0, "median": np.log(2), "q95": -np.log(0.05)}[statistic]
    found = [own(sample(rng.exponential(size=80), statistic=statistic)) for _ in range(60)]
    covered = np.mean([one.low < truth < one.high for one in found])
    missed = np.mean([one.low < 1.6 * truth < one.high for one in found])
    assert covered > 0.83
    assert missed < 0.45


def test_a_rank_correlation_has_fishers_interval():
    rng = np.random.default_rng(2)
    found = []
    for _ in range(200):
        x = rng.normal(size=40)
        y = x + rng.normal(size=40)
        r = float(stats.spearmanr(x, y).statistic)
        one = of_correlation(r, 40)
        found.append(one.low < 6 / np.pi * np.arcsin(np.sqrt(0.5) / 2) < one.high)
    assert 0.90 < np.mean(found) < 0.995
    assert of_correlation(0.9, 4).high == np.inf
