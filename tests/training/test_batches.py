"""Which records a step sees."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from exhume.protocol.errors import InputError
from exhume.training import Batches


def _rng(seed=0):
    return np.random.default_rng(seed)


@settings(deadline=None, max_examples=50)
@given(count=st.integers(1, 40), size=st.integers(1, 50), epochs=st.integers(1, 4))
def test_an_epoch_sees_every_record_once(count, size, epochs):
    batches = Batches(size)
    steps = list(batches.steps(count, epochs, _rng()))
    each = batches.steps_an_epoch(count)
    assert len(steps) == epochs * each
    for epoch in range(epochs):
        seen = np.concatenate(steps[epoch * each : (epoch + 1) * each])
        assert sorted(seen) == list(range(count))
    assert all(len(step) <= size for step in steps)


def test_a_seed_fixes_the_order_for_everybody():
    one = list(Batches(4, seed=3).steps(10, 2, _rng(1)))
    other = list(Batches(4, seed=3).steps(10, 2, _rng(2)))
    assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    different = list(Batches(4, seed=4).steps(10, 2, _rng(1)))
    assert not all(np.array_equal(a, b) for a, b in zip(one, different, strict=True))


def test_without_seed_the_training_draws_it():
    batches = Batches(4, seed=None)
    assert not batches.known
    one, same = (list(batches.steps(10, 2, _rng(1))) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(one, same, strict=True))
    other = list(batches.steps(10, 2, _rng(2)))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_epochs_are_shuffled_anew():
    first, second = Batches(20).steps(20, 2, _rng())
    assert not np.array_equal(first, second)


def _inclusions(batches: Batches) -> tuple[int, int]:
    steps = list(batches.steps(50, 200, _rng()))
    return sum(len(step) for step in steps), 50 * len(steps)


def test_poisson_joins_by_the_stated_chance():
    """Accepts size / n, and rejects a rate a tenth off."""
    joined, chances = _inclusions(Batches(10, seed=7, poisson=True))
    assert stats.binomtest(joined, chances, 0.2).pvalue > 1e-3
    assert stats.binomtest(joined, chances, 0.22).pvalue < 1e-6
    assert stats.binomtest(joined, chances, 0.18).pvalue < 1e-6


def test_poisson_joins_are_independent():
    """Sizes of batches have the binomial's variance, and not 0 as shuffled ones."""
    sizes = [len(s) for s in Batches(10, seed=1, poisson=True).steps(50, 400, _rng())]
    assert np.var(sizes) == pytest.approx(50 * 0.2 * 0.8, rel=0.15)


@pytest.mark.parametrize("size", [0, -3])
def test_empty_batches_are_refused(size):
    with pytest.raises(InputError, match=f"got size {size}"):
        Batches(size)
