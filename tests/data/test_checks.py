"""Data that nothing can be learnt from are refused before training, in one clear line."""

import numpy as np
import pytest

from exhume.data import Task, check_for_training
from exhume.protocol.errors import InputError
from exhume.protocol.records import Records

X = np.arange(8.0).reshape(4, 2)


@pytest.mark.parametrize(
    ("task", "y"),
    [
        (Task.BINARY, [0, 1, 1, 0]),
        (Task.BINARY, [0.0, 1.0, 1.0, 0.0]),
        (Task.MULTICLASS, [0, 7, 7, 3]),
        (Task.REGRESSION, [0.5, -1, 2, 2]),
        (Task.COUNTS, [0, 3, 1, 1]),
        (Task.COUNTS, [0.0, 3.0, 1.0, 1.0]),
    ],
)
def test_sound_data_pass(task: Task, y: list[float]) -> None:
    check_for_training(Records(X, np.array(y)), task)
    # One constant feature is no fault: images have pixels that are always black.
    check_for_training(Records(X * [1, 0], np.array(y)), task)


@pytest.mark.parametrize(
    ("task", "y", "expected"),
    [
        (Task.BINARY, [1, 1, 1, 1], "every record has label 1: a classifier needs"),
        (Task.BINARY, [-1, 1, 1, -1], "must be 0 and 1, got -1, 1"),
        (Task.BINARY, [0, 1, 2, 1], "must be 0 and 1, got 0, 1, 2"),
        (Task.MULTICLASS, [5, 5, 5, 5], "every record has label 5"),
        (Task.MULTICLASS, [0.0, 1.0, 1.0, 2.0], "must be integers 0, 1, …, got float64"),
        (Task.MULTICLASS, [0, -1, 1, 2], "integers from 0, got -1"),
        (Task.REGRESSION, [2.5, 2.5, 2.5, 2.5], "the same response, 2.5"),
        (Task.COUNTS, [3, 3, 3, 3], "the same count, 3"),
        (Task.COUNTS, [0, 1, -2, 3], "got -2 in record 2"),
        (Task.COUNTS, [0.0, 1.0, 2.5, 3.0], "got 2.5 in record 2"),
    ],
)
def test_labels(task: Task, y: list[float], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        check_for_training(Records(X, np.array(y)), task)


@pytest.mark.parametrize("task", list(Task))
@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (np.zeros((0, 2)), "the data are empty"),
        (np.zeros((4, 0)), "hold no values"),
        (np.full((4, 2), 3.0), "all 4 records are the same"),
        (X[:1], "all 1 records are the same"),
        (X * 1j, "real numbers"),
    ],
)
def test_inputs(task: Task, x: np.ndarray, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        check_for_training(Records(x, np.arange(len(x)) % 2), task)


def test_no_labels() -> None:
    with pytest.raises(InputError, match="no labels"):
        check_for_training(Records(X), Task.BINARY)


def test_nan() -> None:
    """Records refuse NaN themselves; values slipped in behind their back are still noticed."""
    for name in ("x", "y"):
        records = Records(X, np.array([0.0, 1.0, 1.0, 0.0]))
        spoilt = getattr(records, name).copy()
        spoilt[1] = np.nan
        object.__setattr__(records, name, spoilt)
        with pytest.raises(InputError, match=f"{name} has .* NaN"):
            check_for_training(records, Task.BINARY)


def test_many_wrong_labels_stay_one_line() -> None:
    with pytest.raises(InputError, match="9 different values") as caught:
        check_for_training(Records(np.eye(9), np.arange(9)), Task.BINARY)
    assert len(str(caught.value)) < 100
