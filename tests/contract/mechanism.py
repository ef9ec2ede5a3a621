"""The contract of every mechanism. Inherit, and provide the fixture ``case``."""

from __future__ import annotations

import dataclasses
import pickle

import dp_accounting
import numpy as np
import pytest
from tests.contract.cases import Case
from tests.contract.graph import holds_record, reachable_arrays

from exhume.protocol.mechanism import Mechanism
from exhume.protocol.records import Records
from exhume.protocol.release import Release, non_finite


class MechanismContract:
    """The contract. ``case`` holds the mechanism, a fixed set and targets."""

    @pytest.fixture
    def case(self) -> Case:
        raise NotImplementedError("provide a case with the mechanism under test")

    def test_settings_are_frozen(self, case: Case) -> None:
        assert dataclasses.is_dataclass(case.mechanism)
        for field in dataclasses.fields(case.mechanism):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(case.mechanism, field.name, None)

    def test_survives_a_pickle(self, case: Case) -> None:
        """An executor sends mechanisms to other processes; the copy publishes the same."""
        copy = pickle.loads(pickle.dumps(case.mechanism))
        assert type(copy) is type(case.mechanism)
        assert_identical(published(copy, case), published(case.mechanism, case))

    def test_data_is_left_alone(self, case: Case) -> None:
        data = case.fixed_set.with_record(case.targets.take([0]))
        arrays = reachable_arrays(data, case.mechanism)
        before = [a.tobytes() for a in arrays]
        case.mechanism.publish(data, rng=np.random.default_rng(0))
        case.mechanism.publish_each(case.fixed_set, case.targets, rngs=case.streams())
        assert [a.tobytes() for a in arrays] == before

    def test_same_stream_same_release(self, case: Case) -> None:
        first = published(case.mechanism, case)
        np.random.seed(99)  # noqa: NPY002
        assert_identical(first, published(case.mechanism, case))

    def test_releases_are_finite_and_read_only(self, case: Case) -> None:
        for release in case.releases:
            assert non_finite(release) is None
            assert not any(array.flags.writeable for _, array in release.arrays())

    def test_neither_keeps_the_record(self, case: Case) -> None:
        """The mechanism is public and stores no data; a release contains no record unchanged."""
        for i in range(len(case.targets)):
            held = holds_record([case.mechanism, case.releases[i]], case.targets.x[i])
            assert held is None

    def test_each_is_published_as_one_by_one(self, case: Case) -> None:
        for i, rng in enumerate(case.streams()):
            data = case.fixed_set.with_record(case.targets.take([i]))
            assert_close(case.releases[i], case.mechanism.publish(data, rng=rng))

    def test_other_targets_do_not_matter(self, case: Case) -> None:
        streams = case.streams()
        alone = case.mechanism.publish_each(
            case.fixed_set, case.targets.take([1]), rngs=[streams[1]]
        )
        assert len(alone) == 1
        assert_close(case.releases[1], alone[0])

    def test_no_targets_no_releases(self, case: Case) -> None:
        none = case.targets.take(np.array([], dtype=int))
        assert list(case.mechanism.publish_each(case.fixed_set, none, rngs=[])) == []

    def test_the_target_shows(self, case: Case) -> None:
        """Attacks on a release that does not depend on the target would be meaningless."""
        arrays = [np.concatenate([a.ravel() for _, a in r.arrays()]) for r in case.releases]
        assert not np.array_equal(arrays[0], arrays[1])

    def test_accounting_travels_along(self, case: Case) -> None:
        event = case.mechanism.event(len(case.fixed_set) + 1)
        assert isinstance(event, dp_accounting.DpEvent)


def published(mechanism: Mechanism, case: Case) -> Release:
    """Return the release of the first target, with a fresh random stream."""
    data: Records = case.fixed_set.with_record(case.targets.take([0]))
    return mechanism.publish(data, rng=np.random.default_rng(11))


def assert_identical(one: Release, other: Release) -> None:
    """Assert that two releases are identical bit for bit."""
    assert type(one) is type(other)
    for (name, a), (other_name, b) in zip(one.arrays(), other.arrays(), strict=True):
        assert name == other_name
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes()), name


def assert_close(one: Release, other: Release) -> None:
    """Assert that two releases agree up to rounding: solvers may share work, but not results."""
    assert type(one) is type(other)
    for (name, a), (other_name, b) in zip(one.arrays(), other.arrays(), strict=True):
        assert name == other_name
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12, err_msg=name)
