"""Which records a step sees."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from exhume.models import MLP
from exhume.protocol.errors import InputError
from exhume.protocol.records import Records
from exhume.runtime.fingerprint import fingerprint
from exhume.training import SGD, Batches, GivenBatches, Training
from exhume.training.many_mlps import FoldedSimulator
from exhume.training.many_models import BatchedSimulator
from exhume.training.simulator import PlainSimulator


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


class TestAGivenOrder:
    """The order of a loader outside: shuffled by its own generator, last batch dropped."""

    ORDER = np.array([[3, 0, 20, 7, 9, 2], [1, 20, 5, 0, 4, 8]])

    def test_it_is_the_order(self):
        steps = list(GivenBatches(4, order=self.ORDER).steps(21, 2, _rng()))
        expected = [[3, 0, 20, 7], [9, 2], [1, 20, 5, 0], [4, 8]]
        assert [step.tolist() for step in steps] == expected
        assert GivenBatches(4, order=self.ORDER).steps_an_epoch(21) == 2

    def test_equal_orders_are_equal_and_survive_a_pickle(self):
        one, other = (GivenBatches(4, order=order) for order in (self.ORDER, self.ORDER[::-1]))
        again = pickle.loads(pickle.dumps(one))
        assert again == one != other
        assert hash(again) == hash(one)
        assert fingerprint(again) == fingerprint(one) != fingerprint(other)
        assert one != Batches(4)
        with pytest.raises(ValueError, match="read-only"):
            one.order[0, 0] = 1

    def test_a_training_that_stops_early_needs_no_more_epochs(self):
        batches = GivenBatches(4, order=self.ORDER)
        training = Training(MLP((3,), 2, ()), (0, 1), SGD(0.1), 9, batches, stop_after=3)
        assert [len(step) for step in training.steps(21, _rng())] == [4, 2, 4]
        with pytest.raises(InputError, match="2 rows, one per epoch, but the training has 9"):
            list(replace(training, stop_after=None).steps(21, _rng()))

    @pytest.mark.parametrize("fast", [FoldedSimulator, BatchedSimulator])
    def test_simulators_follow_it(self, fast):
        rng = np.random.default_rng(1)
        known = Records(rng.uniform(size=(20, 3)), rng.integers(2, size=20))
        tried = Records(rng.uniform(size=(3, 3)), np.array([0, 1, 1]))
        batches = GivenBatches(4, order=self.ORDER)
        training = Training(MLP((3,), 2, (4,)), (0, 1), SGD(0.3), 2, batches, precision="float64")
        moved = PlainSimulator(training, known).differences(tried.x, tried.labels)
        found = fast(training, known).differences(tried.x, tried.labels)
        np.testing.assert_allclose(found, moved, rtol=1e-4, atol=1e-4 * np.abs(moved).max())
        released = training.publish(known.with_record(tried.take([1])), rng=_rng())
        theta = np.concatenate([a.ravel() for a in released.parameters.values()])
        base = PlainSimulator(training, known).base
        np.testing.assert_allclose(theta - base, moved[1], atol=1e-9)

    @pytest.mark.parametrize(
        ("order", "said"),
        [
            ([0, 1, 2], "one row per epoch, got shape"),
            ([[0.0, 1.0]], "of type float64"),
            ([[0, 1, 1]], "a record twice in one epoch"),
            (np.zeros((2, 0), int), "one row per epoch"),
        ],
    )
    def test_what_is_no_order(self, order, said):
        with pytest.raises(InputError, match=said):
            GivenBatches(2, order=np.array(order))

    def test_it_is_for_as_many_records(self):
        with pytest.raises(InputError, match="from 0 to 20, but there are 20: 0 to 19"):
            GivenBatches(4, order=self.ORDER).require(20, 2)
