"""Attribute inference: errors on the unknown entries, and what the known ones give away."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.covariance import ledoit_wolf

from exhume.attacks.conditional_guess import Guess, choose_guess, gaussian_guess, nearest_guess
from exhume.data import load
from exhume.metrics import RMSE, nearest_neighbours
from exhume.metrics.attributes import (
    AttributeMatch,
    AttributeRMSE,
    discrete_levels,
    score_attributes,
)
from exhume.protocol.errors import InputError
from exhume.stats.covariance import shrunk_covariance

SIZES = st.sampled_from([(12, 3), (6, 20), (9, 9)])


class TestErrorsOnUnknownEntries:
    @settings(deadline=None, max_examples=40)
    @given(seed=st.integers(0, 10**6), scaled=st.booleans())
    def test_against_a_plain_loop(self, seed, scaled):
        rng = np.random.default_rng(seed)
        truth, samples = rng.normal(size=(2, 3, 4, 2))
        known = rng.random((4, 2)) < 0.5
        known[0, 0] = False
        scale = rng.uniform(0.5, 2.0, (4, 2)) if scaled else np.ones((4, 2))
        found = AttributeRMSE(known=known, scale=scale)(truth, samples)
        for i in range(3):
            terms = [
                ((truth[i][j] - samples[i][j]) / scale[j]) ** 2
                for j in np.ndindex(4, 2)
                if not known[j]
            ]
            assert found[i] == pytest.approx(np.sqrt(np.mean(terms)), rel=1e-12)

    def test_known_entries_do_not_count(self):
        metric = AttributeRMSE(known=np.array([True, False]))
        truth = np.array([[1.0, 2.0]])
        assert metric(truth, np.array([[99.0, 2.0]])) == 0.0
        # The plain metric flatters an attack that was told half of the record.
        told = np.array([[1.0, 5.0]])
        assert metric(truth, told) == 3.0
        assert RMSE()(truth, told) == pytest.approx(3.0 / np.sqrt(2))

    def test_nothing_known_is_the_plain_error(self):
        rng = np.random.default_rng(0)
        truth, samples = rng.normal(size=(2, 5, 6))
        metric = AttributeRMSE(known=np.zeros(6, dtype=bool))
        np.testing.assert_allclose(metric(truth, samples), RMSE()(truth, samples))

    def test_serves_the_nearest_neighbour_oracle(self):
        pool = np.array([[0.0, 5.0], [9.0, 1.0]])
        metric = AttributeRMSE(known=np.array([True, False]))
        assert nearest_neighbours(np.array([[0.0, 1.2]]), pool, metric).nearest_index == [1]

    def test_errors(self):
        with pytest.raises(InputError, match="every entry is known"):
            AttributeRMSE(known=np.array([True, True]))
        with pytest.raises(InputError, match=r"mask of known entries has shape \(3,\)"):
            AttributeRMSE(known=np.array([True, False, False]))(np.ones((1, 2)), np.ones((1, 2)))
        with pytest.raises(InputError, match="scale must be positive"):
            AttributeRMSE(known=np.array([False]), scale=np.array([0.0]))
        with pytest.raises(InputError, match="value range"):
            AttributeRMSE(known=np.array([False, False]), value_range=(0, 1))(
                np.array([[0.0, 2.0]]), np.array([[0.0, 1.0]])
            )


class TestDiscreteEntries:
    pool = np.array([[0.1, 1, 0, 7], [0.2, 2, 1, 7], [0.3, 1, 1, 7]])

    def test_levels_are_the_pool_s(self):
        levels = discrete_levels(self.pool, np.array([False, False, False, False]), most=2)
        # A column that never changes is no attribute to infer.
        assert levels == ((1, (1.0, 2.0)), (2, (0.0, 1.0)))
        assert discrete_levels(self.pool, np.array([True, True, False, True])) == ((2, (0.0, 1.0)),)

    def test_share_of_exact_matches(self):
        levels = discrete_levels(self.pool, np.array([True, False, False, False]), most=2)
        metric = AttributeMatch(levels=levels)
        truth = np.array([[0.1, 2, 1, 7], [0.1, 2, 1, 7], [0.1, 1.7, 0, 7]])
        samples = np.array([[5.0, 1.6, 0.9, 0], [5.0, 1.4, 0.9, 0], [5.0, 1.7, 0.1, 0]])
        # The last truth lies on no level of the pool: no guess among the levels can match it.
        assert metric(truth, samples).tolist() == [1.0, 0.5, 0.5]
        assert metric.higher_is_better

    def test_nothing_discrete(self):
        with pytest.raises(InputError, match="no unknown entry is discrete"):
            AttributeMatch(levels=())


def test_scores_beside_a_guess():
    truth = np.array([[0.0, 1.0, 1.0]] * 4)
    samples, guesses = truth.copy(), truth.copy()
    samples[:, 1] += [0.0, 0.1, 0.1, 0.6]
    guesses[:, 1] += [0.2, 0.2, 0.1, 0.2]
    known, levels = np.array([True, False, False]), ((1, (0.0, 1.0, 1.3)),)
    found = score_attributes(truth, samples, guesses, known=known, levels=levels)
    np.testing.assert_allclose(found.errors, np.array([0, 0.1, 0.1, 0.6]) / np.sqrt(2))
    # Three are no worse, but only two are closer.
    assert (found.beaten.successes, found.beaten.trials) == (2, 4)
    assert (found.match, found.guess_match) == (0.75, 0.25)
    assert score_attributes(truth, samples, guesses, known=known).match is None


class TestShrinkage:
    @settings(deadline=None, max_examples=30)
    @given(seed=st.integers(0, 10**6), size=SIZES)
    def test_is_ledoit_and_wolf_s(self, seed, size):
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=size) * rng.uniform(0.1, 3.0, size[1])
        rows -= rows.mean(axis=0)
        covariance, share = ledoit_wolf(rows, assume_centered=True)
        found = shrunk_covariance(rows)
        assert 1.0 - found.share == pytest.approx(share, rel=1e-9)
        right = rng.normal(size=(size[1], 2))
        np.testing.assert_allclose(
            found.solve(right), np.linalg.solve(covariance, right), rtol=1e-8, atol=1e-10
        )

    def test_no_spread_at_all(self):
        found = shrunk_covariance(np.zeros((5, 3)))
        assert found.solve(np.arange(3.0)).tolist() == [0.0, 1.0, 2.0]

    @pytest.mark.parametrize("shape", [(0, 3), (3, 0), (3,)])
    def test_errors(self, shape):
        with pytest.raises(InputError, match="deviations need shape"):
            shrunk_covariance(np.zeros(shape))


class TestGaussianGuess:
    @settings(deadline=None, max_examples=30)
    @given(seed=st.integers(0, 10**6), size=SIZES, parts=st.sampled_from([1, 2]))
    def test_against_the_whole_covariance(self, seed, size, parts):
        """Σᵤₖ Σₖₖ⁻¹ (x − μ), with scikit-learn's covariance written out."""
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=size) @ rng.normal(size=(size[1], size[1]))
        cut = size[1] * parts // 3
        mean = rows.mean(axis=0)
        covariance, _ = ledoit_wolf(rows - mean, assume_centered=True)
        seen = rng.normal(size=(4, cut))
        slopes = np.linalg.solve(covariance[:cut, :cut], covariance[:cut, cut:])
        expected = mean[cut:] + (seen - mean[:cut]) @ slopes
        found = gaussian_guess(rows[:, :cut], rows[:, cut:], seen)
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-8)

    def test_reaches_the_conditional_mean(self):
        """A Gaussian with a known covariance: the slope is .8, the variance left is 1 − .64."""
        rng = np.random.default_rng(0)
        x = rng.normal(size=(5000, 1))
        y = 0.8 * x + 0.6 * rng.normal(size=(5000, 1))
        seen = np.array([[-1.0], [2.0]])
        np.testing.assert_allclose(gaussian_guess(x, y, seen, shrinkage=0.0), 0.8 * seen, atol=0.06)
        choice = choose_guess(x, y)
        assert choice.guess is Guess.GAUSSIAN
        assert choice.gaussian == pytest.approx(0.36, abs=0.04)
        # Copying a neighbour's value costs its noise as well: twice the variance.
        assert choice.nearest == pytest.approx(0.72, abs=0.08)

    def test_a_pool_without_spread(self):
        found = gaussian_guess(np.ones((4, 2)), np.full((4, 1), 3.0), np.array([[5.0, 5.0]]))
        assert found.tolist() == [[3.0]]


class TestNearestGuess:
    def test_against_a_plain_search(self):
        rng = np.random.default_rng(0)
        known, unknown, seen = (
            rng.normal(size=(40, 3)),
            rng.normal(size=(40, 2)),
            rng.normal(size=(7, 3)),
        )
        for row, found in zip(seen, nearest_guess(known, unknown, seen), strict=True):
            best = min(range(40), key=lambda i: np.sum((known[i] - row) ** 2))
            assert found.tolist() == unknown[best].tolist()

    def test_wins_where_the_relation_is_bent(self):
        x = np.linspace(-3, 3, 400)[:, None]
        choice = choose_guess(x, np.cos(3 * x))
        assert choice.guess is Guess.NEAREST
        assert choice.errors.mean() == choice.nearest
        assert choice.nearest < 0.01 < choice.gaussian
        found = choice(x, np.cos(3 * x), np.array([[1.0]]))
        assert found[0, 0] == pytest.approx(np.cos(3.0), abs=0.05)


class TestRealImages:
    """784 pixels and 300 records, the upper half known."""

    images = load("fashion-mnist-small").train.x.reshape(3000, 784).astype(np.float64)
    known, unknown = images[:300, :392], images[:300, 392:]
    seen, hidden = images[300:400, :392], images[300:400, 392:]

    def test_what_the_upper_half_says_of_the_lower(self):
        choice = choose_guess(self.known, self.unknown)
        error = float(np.mean((choice(self.known, self.unknown, self.seen) - self.hidden) ** 2))
        blind = float(np.mean((self.unknown.mean(axis=0) - self.hidden) ** 2))
        assert error < 0.75 * blind
        # Cross-validation on the pool tells what happens on other records.
        assert error == pytest.approx(choice.gaussian, rel=0.15)

    def test_few_judges_need_few_records(self):
        with pytest.raises(InputError, match="at least 3 records, got 2"):
            choose_guess(self.known[:2], self.unknown[:2])
