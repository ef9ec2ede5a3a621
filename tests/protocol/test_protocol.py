"""The protocol's nouns: what they check, freeze and refuse."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.contract.cases import model, records

import exhume
from exhume.protocol.arrays import all_finite, frozen, frozen_mapping, require_finite
from exhume.protocol.errors import ExhumeError, InputError
from exhume.protocol.knowledge import Knowledge, KnownAttributes
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.records import Records
from exhume.protocol.release import Answer, Gradient, Outputs, Release, Update, Weights, non_finite
from exhume.protocol.seeds import generator, stream
from exhume.training import Family

_X = np.arange(6.0).reshape(3, 2)


# Arrays


@settings(deadline=None, max_examples=40)
@given(values=arrays(np.float64, st.tuples(st.integers(0, 4), st.integers(0, 4))))
def test_frozen_is_a_copy_that_nobody_can_change(values: np.ndarray) -> None:
    kept = frozen(values)
    assert not kept.flags.writeable
    assert kept.base is None
    assert not np.shares_memory(kept, values)
    np.testing.assert_array_equal(kept, values)
    assert frozen(kept) is kept


def test_frozen_refuses_objects() -> None:
    with pytest.raises(InputError, match="expected an array of numbers, got objects"):
        frozen(np.array([{"a": 1}], dtype=object))


def test_frozen_mapping_keeps_order_and_refuses_changes() -> None:
    mapping = frozen_mapping({"b": [1.0], "a": [2.0]})
    assert list(mapping) == ["b", "a"]
    with pytest.raises(TypeError):
        mapping["c"] = np.zeros(1)  # type: ignore[index]
    with pytest.raises(ValueError, match="read-only"):
        mapping["a"][0] = 5.0


def test_require_finite_names_the_place() -> None:
    require_finite(np.array([1, 2]), "counts")
    with pytest.raises(InputError, match=r"ages has 2 NaN .* the first at index \(0, 1\)"):
        require_finite(np.array([[1.0, np.nan], [np.inf, 2.0]]), "ages")
    assert all_finite(np.array(["text"]))


# Records


def test_records_check_their_shapes() -> None:
    with pytest.raises(InputError, match=r"shape \(n, features, ...\), got \(3,\)"):
        Records(np.zeros(3))
    with pytest.raises(InputError, match=r"y needs shape \(3,\) like x, got \(2,\)"):
        Records(_X, np.zeros(2))
    with pytest.raises(InputError, match="weight needs shape"):
        Records(_X, weight=np.zeros((3, 1)))
    with pytest.raises(InputError, match="x has 1 NaN"):
        Records(np.array([[np.nan]]))
    with pytest.raises(InputError, match="weight has 1 NaN"):
        Records(_X, weight=np.array([1.0, np.inf, 1.0]))
    with pytest.raises(InputError, match="no labels"):
        _ = Records(_X).labels


def test_records_take_and_join() -> None:
    data = Records(_X, np.array(["a", "b", "c"]), np.array([1.0, 2.0, 3.0]))
    taken = data.take([2, 0])
    assert taken.labels.tolist() == ["c", "a"]
    assert taken.weight.tolist() == [3.0, 1.0]
    joined = data.with_record(taken)
    assert len(joined) == 5
    assert joined.labels.tolist() == ["a", "b", "c", "c", "a"]
    assert data.with_record(Records(_X[:1], np.array(["z"]))).weight.tolist() == [1, 2, 3, 1]
    assert Records(_X).with_record(Records(_X)).y is None
    with pytest.raises(InputError, match=r"target has shape \(3,\), the records \(2,\)"):
        data.with_record(Records(np.zeros((1, 3)), np.array(["a"])))
    with pytest.raises(InputError, match="no labels"):
        data.with_record(Records(_X[:1]))


def test_records_are_their_own() -> None:
    x = _X.copy()
    data = Records(x)
    x[0, 0] = 99.0
    assert data.x[0, 0] == 0.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.x = x  # type: ignore[misc]


# Releases


@pytest.mark.parametrize(
    "release",
    [
        Weights({"w": _X}),
        Gradient({"w": _X}, 1),
        Update({"w": _X}, 1, 5),
        Outputs(_X, _X, Answer.SCORES),
    ],
    ids=lambda release: type(release).__name__,
)
def test_releases_list_what_they_hold(release: Release) -> None:
    named = dict(release.arrays())
    assert sorted(named) == (["queries", "values"] if isinstance(release, Outputs) else ["w"])
    assert not any(array.flags.writeable for array in named.values())
    assert non_finite(release) is None


def test_non_finite_names_the_array() -> None:
    assert non_finite(Weights({"ok": _X, "bad": np.array([np.inf])})) == "bad"
    assert non_finite(Outputs(_X, np.full((3, 1), np.nan))) == "values"


@pytest.mark.parametrize(
    "make",
    [
        lambda: Gradient({}, 0),
        lambda: Update({}, 0, 1),
        lambda: Update({}, 1, 0),
        lambda: Outputs(_X, np.zeros(3)),
        lambda: Outputs(_X, np.zeros((2, 1))),
    ],
    ids=["batch", "batch", "steps", "flat", "count"],
)
def test_releases_check_their_sizes(make: object) -> None:
    with pytest.raises(InputError, match=r"must be at least 1, got 0|outputs need queries"):
        make()  # type: ignore[operator]


# Knowledge


def test_knowledge_checks_shapes_and_range() -> None:
    with pytest.raises(InputError, match=r"records of shape \(2,\) given"):
        Knowledge(record_shape=(3,), fixed_set=Records(_X))
    with pytest.raises(InputError, match="low < high"):
        Knowledge(record_shape=(2,), value_range=(1.0, 1.0))
    known = KnownAttributes(np.array([True, False, True]), np.zeros(3))
    with pytest.raises(InputError, match=r"known attributes have shape \(3,\)"):
        Knowledge(record_shape=(2,), known_attributes=known)
    with pytest.raises(InputError, match="must have one shape"):
        KnownAttributes(np.array([True]), np.zeros(2))
    with pytest.raises(InputError, match="known attributes has 1 NaN"):
        KnownAttributes(np.array([True, False]), np.array([np.nan, np.nan]))


def test_the_pool_is_everything_it_had() -> None:
    empty = Knowledge(record_shape=(2,))
    assert empty.pool().shape == (0, 2)
    both = Knowledge(record_shape=(2,), fixed_set=Records(_X), shadow_targets=Records(_X + 10))
    np.testing.assert_array_equal(both.pool(), np.concatenate([_X, _X + 10]))


def test_unknown_attributes_do_not_travel() -> None:
    known = KnownAttributes(np.array([True, False]), np.array([3.0, 42.0]))
    assert known.values.tolist() == [3.0, 0.0]


# Reconstructions


def test_reconstructions_are_frozen_and_consistent() -> None:
    found = Reconstruction(_X, Status.CONVERGED, confidence=np.ones(3), stats={"steps": 3})
    assert len(found) == 3
    with pytest.raises(TypeError):
        found.stats["steps"] = 4  # type: ignore[index]
    for name in ("labels", "confidence", "error_estimate"):
        with pytest.raises(InputError, match=rf"{name} needs one per candidate \(3\)"):
            Reconstruction(_X, Status.CONVERGED, **{name: np.ones(2)})


def test_only_a_run_says_something() -> None:
    """Success rates count attacks that ran: not refusals, crashes or broken releases."""
    ran = {status for status in Status if status.ran}
    assert ran == {Status.CONVERGED, Status.APPROXIMATE, Status.NO_INFORMATION}
    assert all(status.value.strip() for status in Status)


# Seeds


def test_streams_are_their_roles_own() -> None:
    def draw(seed: int, *role: str | int) -> float:
        return float(stream(seed, *role).random())

    assert draw(0, "attack", 1) == draw(0, "attack", 1)
    different = {
        draw(0, "attack", 1),
        draw(0, "attack", 2),
        draw(1, "attack", 1),
        draw(0, "defence", 1),
        draw(0, "attack"),
        draw(0, "attack1"),
        draw(0, "att", "ack", 1),
    }
    assert len(different) == 7


def test_streams_stay_what_they_are() -> None:
    """Golden: PCG64 seeded by (seed, first 16 bytes of SHA-256 of the role): old runs repeat."""
    assert stream(0, "attack", "glm", 17).integers(1000, size=4).tolist() == [847, 501, 317, 524]


def test_a_generator_is_used_as_it_is() -> None:
    rng = np.random.default_rng(0)
    assert generator(rng) is rng
    assert generator(5).random() == np.random.default_rng(5).random()


# Mechanisms


class _Mean(Mechanism):
    def publish(self, data: Records, *, rng: np.random.Generator) -> Release:
        return Weights({"mean": data.x.mean(axis=0) + rng.normal()})


def test_publishing_each_by_default() -> None:
    """One release per target, with its own stream, on the fixed set and that target alone."""
    streams = [np.random.default_rng(i) for i in range(2)]
    each = _Mean().publish_each(Records(_X), Records(_X[:2] + 6.0), rngs=streams)
    for i, release in enumerate(each):
        whole = np.concatenate([_X, _X[i : i + 1] + 6.0])
        expected = whole.mean(axis=0) + np.random.default_rng(i).normal()
        np.testing.assert_allclose(release.parameters["mean"], expected)


def test_a_mechanism_promises_nothing_unless_it_says_so() -> None:
    import dp_accounting

    assert _Mean().event(10) == dp_accounting.NonPrivateDpEvent()
    assert model(Family.LINEAR).event(10) == dp_accounting.NonPrivateDpEvent()


# The public names


def test_public_names_exist() -> None:
    for name in exhume.__all__:
        assert getattr(exhume, name) is not None
    assert set(exhume.__all__) <= set(dir(exhume))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = exhume.nonsense  # type: ignore[attr-defined]


def test_errors_are_one_family() -> None:
    assert issubclass(InputError, ExhumeError)
    assert issubclass(InputError, ValueError)


def test_errors_are_one_line() -> None:
    """The command line prints an error as it is: one line, whatever was wrong."""
    wrong = [
        lambda: Records(np.zeros(3)),
        lambda: Knowledge(record_shape=(3,), fixed_set=Records(_X)),
        lambda: model(Family.LOGISTIC).publish(
            Records(np.ones((4, 2)), np.array([0, 1, 0, 1])), rng=np.random.default_rng(0)
        ),
        lambda: model(Family.LOGISTIC).publish(
            Records(records(Family.LOGISTIC).x), rng=np.random.default_rng(0)
        ),
    ]
    for make in wrong:
        with pytest.raises(InputError) as error:
            make()
        assert str(error.value).strip()
        assert "\n" not in str(error.value)
