"""Rates, areas and intervals of a game."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from exhume.attacks.informed.membership import Against, MembershipResult
from exhume.metrics import clopper_pearson
from exhume.protocol.errors import InputError
from exhume.stats.roc import roc_area

SCORES = arrays.arrays(np.float64, st.integers(1, 12), elements=st.integers(-3, 3).map(float))


def _result(members, scores, **settings):
    scores = np.asarray(scores, dtype=float)
    return MembershipResult(
        "test", Against.ANOTHER_RECORD, members, settings.pop("decisions", scores > 0), scores
    )


def _brute_area(members, others):
    wins = [(a > b) + 0.5 * (a == b) for a, b in itertools.product(members, others)]
    return float(np.mean(wins))


class TestArea:
    @settings(deadline=None, max_examples=100)
    @given(members=SCORES, others=SCORES)
    def test_is_the_share_of_ordered_pairs(self, members, others):
        found = roc_area(members, others)
        assert found.estimate == pytest.approx(_brute_area(members, others), abs=1e-12)
        assert 0.0 <= found.low <= found.estimate + 1e-9
        assert found.estimate - 1e-9 <= found.high <= 1.0

    @settings(deadline=None, max_examples=50)
    @given(members=SCORES, others=SCORES)
    def test_changing_sides_turns_it_round(self, members, others):
        one, other = roc_area(members, others), roc_area(others, members)
        assert one.estimate == pytest.approx(1.0 - other.estimate, abs=1e-12)
        assert one.low == pytest.approx(1.0 - other.high, abs=1e-12)

    def test_interval_of_a_perfect_score(self):
        # All 40 pairs won: (1 - p)^0 p^40 = 0.025 at p = 0.025^(1/40) = 0.91192.
        found = roc_area(np.ones(40), np.zeros(60))
        assert found.low == pytest.approx(0.025 ** (1 / 40), abs=1e-9)
        assert found.high == 1.0

    def test_interval_covers(self):
        """Normal scores one deviation apart: the area is Φ(1/√2) = 0.76025."""
        rng = np.random.default_rng(0)
        drawn = [roc_area(rng.normal(1, 1, 15), rng.normal(0, 1, 25)) for _ in range(400)]
        covered = sum(one.low <= 0.7602499 <= one.high for one in drawn)
        assert clopper_pearson(covered, 400, confidence=0.999).high >= 0.95
        assert np.mean([one.estimate for one in drawn]) == pytest.approx(0.7602499, abs=0.02)
        assert np.mean([one.high < 0.95 for one in drawn]) > 0.3

    def test_nothing_to_compare(self):
        found = roc_area(np.empty(0), np.ones(3))
        assert np.isnan(found.estimate)
        assert (found.low, found.high) == (0.0, 1.0)


class TestAdvantage:
    def test_is_that_of_the_right_decisions(self):
        members = np.array([True] * 50 + [False] * 50)
        scores = np.where(members, 1.0, -1.0)
        scores[:5], scores[50:60] = -1.0, 1.0
        found = _result(members, scores)
        share = clopper_pearson(85, 100)
        assert (found.accuracy.successes, found.trials) == (85, 100)
        assert found.advantage.estimate == pytest.approx(0.70)
        assert found.advantage.low == pytest.approx(2 * share.low - 1)
        assert found.advantage.high == pytest.approx(2 * share.high - 1)
        assert found.true_positive_rate.rate == pytest.approx(0.9)
        assert found.false_positive_rate.rate == pytest.approx(0.2)
        assert found.advantage_ceiling is None
        assert found.describe().startswith("test: advantage 0.700 [0.529, 0.827] in 100 trials")

    def test_interval_covers_whatever_the_rates(self):
        """A biased test: true-positive rate 0.3, false-positive rate 0.05."""
        rng = np.random.default_rng(1)
        covered = 0
        for _ in range(1000):
            members = rng.integers(2, size=80).astype(bool)
            positive = rng.random(80) < np.where(members, 0.3, 0.05)
            found = _result(members, np.where(positive, 1.0, -1.0)).advantage
            covered += found.low <= 0.25 <= found.high
        # Exact intervals cover at least as often as they say, and here hardly more.
        share = clopper_pearson(covered, 1000, confidence=0.999)
        assert share.high >= 0.95
        assert share.low <= 0.98


class TestOperatingPoint:
    members = np.array([True] * 4 + [False] * 10)
    scores = np.array([20.0, 8.5, 3.0, -1.0, *range(10)])

    @pytest.mark.parametrize(
        ("rate", "threshold", "true", "false"),
        [
            (0.0, 9.0, 1, 0),
            (0.1, 8.0, 2, 1),
            (0.19, 8.0, 2, 1),
            (0.7, 2.0, 3, 7),
            (1.0, -np.inf, 4, 10),
        ],
    )
    def test_thresholds(self, rate, threshold, true, false):
        found = _result(self.members, self.scores).at(rate)
        assert found.threshold == threshold
        assert (found.true_positive_rate.successes, found.true_positive_rate.trials) == (true, 4)
        assert (found.false_positive_rate.successes, found.false_positive_rate.trials) == (
            false,
            10,
        )
        assert found.ceiling is None

    def test_ties_never_exceed_the_rate(self):
        found = _result([True, True, False, False], [1.0, 1.0, 1.0, 1.0]).at(0.5)
        assert found.false_positive_rate.successes == 0

    @pytest.mark.parametrize("rate", [-0.1, 1.1, np.nan])
    def test_no_such_rate(self, rate):
        with pytest.raises(InputError, match="false_positive_rate"):
            _result(self.members, self.scores).at(rate)


class TestEpsilon:
    @staticmethod
    def _of(true, false, trials=100):
        """So many true and false positives, each of ``trials``."""
        members = np.arange(2 * trials) < trials
        positive = np.concatenate([np.arange(trials) < true, np.arange(trials) < false])
        return _result(members, np.where(positive, 1.0, -1.0))

    def test_of_a_perfect_test(self):
        # Both rates are known to within 1 − 0.025^(1/100) = 0.036217 (Clopper and Pearson).
        end = 1 - 0.025 ** (1 / 100)
        assert self._of(100, 0).epsilon_at_least() == pytest.approx(np.log((1 - end) / end))
        assert self._of(100, 0).epsilon_at_least(delta=0.5) == pytest.approx(
            np.log((0.5 - end) / end)
        )

    def test_either_inequality_may_tell_more(self):
        """Rare true positives without false ones, and rare misses: the same by symmetry."""
        rare, missed = self._of(30, 0), self._of(100, 70)
        assert rare.epsilon_at_least() == pytest.approx(missed.epsilon_at_least())
        true, false = rare.true_positive_rate.low, rare.false_positive_rate.high
        assert rare.epsilon_at_least() == pytest.approx(np.log(true / false))

    def test_of_a_coin(self):
        assert self._of(52, 48).epsilon_at_least() == 0.0
        assert self._of(0, 100).epsilon_at_least() == 0.0
        with pytest.raises(InputError, match="delta"):
            self._of(1, 1).epsilon_at_least(delta=-1.0)


def test_a_score_a_trial():
    with pytest.raises(InputError, match="one decision and one score per trial"):
        MembershipResult("test", Against.NOTHING, [True], [True], [1.0, 2.0])
    with pytest.raises(InputError, match="NaN"):
        _result([True], [np.nan])


def test_results_are_read_only():
    found = _result([True, False], [1.0, -1.0])
    with pytest.raises(ValueError, match="read-only"):
        found.scores[0] = 5.0
