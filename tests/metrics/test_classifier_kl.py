"""The divergence between a classifier's answers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from exhume.metrics import ClassifierKL
from exhume.protocol.errors import InputError


def identity(records: np.ndarray) -> np.ndarray:
    return records


def test_written_out() -> None:
    p, q = np.array([[0.5, 0.5], [0.9, 0.1]]), np.array([[0.25, 0.75], [0.9, 0.1]])
    # 0.5 log(0.5 / 0.25) + 0.5 log(0.5 / 0.75) = 0.14384103622589042
    np.testing.assert_allclose(ClassifierKL(identity)(p, q), [0.14384103622589042, 0], atol=1e-12)


def test_the_truth_comes_first() -> None:
    p, q = np.array([[0.5, 0.5]]), np.array([[0.1, 0.9]])
    forward, backward = ClassifierKL(identity)(p, q), ClassifierKL(identity)(q, p)
    np.testing.assert_allclose(forward, 0.5 * np.log(5) + 0.5 * np.log(5 / 9))
    assert abs(forward - backward) > 0.1


@given(
    hnp.arrays(np.float64, (2, 3, 4), elements=st.floats(0, 1)).filter(
        lambda x: bool((x.sum(-1) > 0.1).all())
    )
)
@settings(deadline=None, max_examples=100)
def test_never_negative_and_against_scipy(drawn: np.ndarray) -> None:
    from scipy.special import rel_entr

    p, q = drawn / drawn.sum(-1, keepdims=True)
    got = ClassifierKL(identity)(p, q)
    assert (got >= 0).all()
    both = np.maximum(p, 1e-12), np.maximum(q, 1e-12)
    np.testing.assert_allclose(got, rel_entr(*both).sum(1), atol=1e-9)


def test_an_impossible_class_costs_the_floor() -> None:
    p, q = np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])
    np.testing.assert_allclose(ClassifierKL(identity)(p, q), np.log(1e12), rtol=1e-9)
    np.testing.assert_allclose(ClassifierKL(identity, floor=1e-3)(p, q), np.log(1e3), rtol=1e-2)


@pytest.mark.parametrize("floor", [0.0, -1e-9, 0.5])
def test_a_floor_out_of_range(floor: float) -> None:
    with pytest.raises(InputError, match="floor"):
        ClassifierKL(identity, floor=floor)


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (np.array([[2.0, -1.0]]), "row 0 sums to 1 .*softmax"),
        (np.array([[3.0, 1.0]]), "row 0 sums to 4"),
        (np.array([0.5]), r"must return \(1, classes\)"),
        (np.ones((1, 1)), "at least 2 classes"),
        (np.full((2, 2), 0.5), r"got \(2, 2\)"),
        (np.array([[np.nan, 1.0]]), "NaN"),
    ],
)
def test_answers_that_are_no_probabilities(answers: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ClassifierKL(lambda records: answers)(np.zeros((1, 3)), np.zeros((1, 3)))
