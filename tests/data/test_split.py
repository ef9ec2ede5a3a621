"""Splits: exact sizes, no record in two parts, no target the adversary already had."""

from random import Random

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from exhume.data import Split, load, restrict_classes, split_records, without_copies
from exhume.protocol.errors import InputError
from exhume.protocol.records import Records


def numbered(count: int) -> Records:
    return Records(np.arange(float(count))[:, None], np.arange(count))


def contents(records: Records) -> list[tuple[float, ...]]:
    return [tuple(record.ravel().tolist()) for record in records.x]


@given(
    fixed=st.integers(0, 20), shadow=st.integers(0, 20), targets=st.integers(1, 20),
    spare=st.integers(0, 10), seed=st.integers(0, 2**32),
)  # fmt: skip
@settings(deadline=None, max_examples=60)
def test_sizes_are_exact_and_parts_disjoint(
    fixed: int, shadow: int, targets: int, spare: int, seed: int
) -> None:
    records = numbered(fixed + shadow + targets + spare)
    parts = split_records(
        records, fixed_set=fixed, shadow_targets=shadow, targets=targets, seed=seed
    )
    assert isinstance(parts, Split)
    drawn = [parts.fixed_set, parts.shadow_targets, parts.targets]
    assert [len(part) for part in drawn] == [fixed, shadow, targets]
    everything = [value for part in drawn for value in contents(part)]
    assert len(set(everything)) == fixed + shadow + targets
    for part in drawn:
        np.testing.assert_array_equal(part.x[:, 0], part.labels)


@given(
    copies=st.lists(st.integers(1, 6), min_size=7, max_size=7), order=st.randoms(),
    seed=st.integers(0, 1000),
)  # fmt: skip
@settings(deadline=None, max_examples=100)
def test_no_target_was_known_before(copies: list[int], order: Random, seed: int) -> None:
    """Against the plain definition, on data full of copies."""
    values = [
        value for value, count in zip(range(-3, 4), copies, strict=True) for _ in range(count)
    ]
    order.shuffle(values)
    records = Records(np.array(values, dtype=np.float32)[:, None])
    # Seven different values: five in the pool leave at least two for the targets.
    parts = split_records(records, fixed_set=3, shadow_targets=2, targets=2, seed=seed)
    known = contents(parts.fixed_set) + contents(parts.shadow_targets)
    targets = contents(parts.targets)
    assert not set(known) & set(targets)
    assert len(set(targets)) == 2
    assert len(known) == 5


@given(seed=st.integers(0, 10_000))
@settings(deadline=None, max_examples=20)
def test_copies_do_not_move_the_pool(seed: int) -> None:
    """The pool is the plain random draw; only targets give way to copies."""
    plain = numbered(30)
    copied = Records(np.concatenate([plain.x[:20], plain.x[:10]]))
    first = split_records(plain, fixed_set=8, shadow_targets=4, targets=1, seed=seed)
    assume(len(set(contents(copied))) == 20)
    second = split_records(copied, fixed_set=8, shadow_targets=4, targets=1, seed=seed)
    expected = copied.x[first.fixed_set.labels.astype(int)]
    np.testing.assert_array_equal(second.fixed_set.x, expected)


def test_the_sign_of_zero_hides_no_copy() -> None:
    records = Records(np.array([[0.0], [-0.0], [0.0], [-0.0]]))
    with pytest.raises(
        InputError, match="only 0 of the 2 remaining records can be targets, 1 are needed"
    ):
        split_records(records, fixed_set=1, shadow_targets=1, targets=1, seed=0)


def test_a_copy_with_another_label_is_a_copy() -> None:
    records = Records(np.ones((4, 2)), np.arange(4))
    with pytest.raises(InputError, match="copies of records drawn before"):
        split_records(records, fixed_set=1, shadow_targets=0, targets=1, seed=0)


def test_same_seed_same_split() -> None:
    records = load("fashion-mnist-small").train
    draws = [
        split_records(records, fixed_set=50, shadow_targets=20, targets=10, seed=seed)
        for seed in (3, 3, 4)
    ]
    np.testing.assert_array_equal(draws[0].targets.x, draws[1].targets.x)
    np.testing.assert_array_equal(draws[0].fixed_set.labels, draws[1].fixed_set.labels)
    assert not np.array_equal(draws[0].targets.x, draws[2].targets.x)


def test_every_record_is_a_target_equally_often() -> None:
    """1,200 splits of 6 records: each is the target 200 times, give or take 4 deviations (12.9)."""
    counts = np.zeros(6, dtype=int)
    for seed in range(1200):
        parts = split_records(numbered(6), fixed_set=3, shadow_targets=1, targets=1, seed=seed)
        counts[parts.targets.labels[0]] += 1
    assert np.abs(counts - 200).max() < 4 * np.sqrt(1200 * (1 / 6) * (5 / 6))


def test_wrong_sizes() -> None:
    with pytest.raises(InputError, match=r"needs 12 records .* only 10"):
        split_records(numbered(10), fixed_set=6, shadow_targets=4, targets=2, seed=0)
    with pytest.raises(InputError, match="targets must be at least 1, got 0"):
        split_records(numbered(10), fixed_set=6, shadow_targets=4, targets=0, seed=0)
    with pytest.raises(InputError, match="fixed_set must be at least 0, got -1"):
        split_records(numbered(10), fixed_set=-1, shadow_targets=4, targets=1, seed=0)


def test_without_copies() -> None:
    targets = Records(np.array([[1.0], [2.0], [2.0], [3.0]]), np.array([0, 1, 1, 0]))
    pool = Records(np.array([[3.0], [1.0]], dtype=np.float32))
    kept = without_copies(targets, pool, numbered(1))
    assert kept.x.ravel().tolist() == [2.0, 2.0]
    assert kept.labels.tolist() == [1, 1]
    assert without_copies(targets) is targets
    assert len(without_copies(targets, targets)) == 0
    with pytest.raises(InputError, match=r"shape \(2,\), expected \(1,\)"):
        without_copies(targets, Records(np.eye(2)))


def test_restrict_classes() -> None:
    records = Records(np.arange(6.0)[:, None], np.array([3, 7, 1, 3, 9, 7]))
    pair = restrict_classes(records, [7, 3])
    assert pair.x.ravel().tolist() == [0, 1, 3, 5]
    assert pair.labels.tolist() == [1, 0, 1, 0]
    with pytest.raises(
        InputError, match="no record has class 4; the existing classes are 1, 3, 7, 9"
    ):
        restrict_classes(records, [3, 4])
    with pytest.raises(InputError, match="once"):
        restrict_classes(records, [3, 3])
    with pytest.raises(InputError, match="at least one"):
        restrict_classes(records, [])
