"""The contract of every attack. Inherit, and provide the fixtures ``attack`` and ``case``."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
from tests.contract.cases import Case
from tests.contract.graph import holds_record, reachable_arrays

from exhume.attacks import Attack
from exhume.protocol.attack import Lacking
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.release import Gradient, Outputs, Release, Transcript, Update, Weights


class AttackContract:
    """The contract. ``case`` is any training that the attack accepts."""

    @pytest.fixture
    def attack(self) -> Attack:
        raise NotImplementedError("provide the attack under test")

    @pytest.fixture
    def case(self) -> Case:
        raise NotImplementedError("provide a case that the attack accepts")

    @pytest.fixture
    def wrong_releases(self, case: Case) -> list[Release]:
        """Releases of a kind that the attack can't read; [] for a guess that reads none."""
        size = case.targets.x[0].size
        return [
            Gradient({"coef": np.ones((1, size))}, 1),
            Update({"coef": np.ones((1, size))}, 1, 1),
            Weights({"layer.weight": np.ones((3, 3))}),
            Weights({}),
            Outputs(case.targets.x, np.ones((len(case.targets), 7))),
        ]

    # Properties of an attack

    def test_settings_are_frozen(self, attack: Attack) -> None:
        assert dataclasses.is_dataclass(attack)
        for field in dataclasses.fields(attack):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(attack, field.name, None)
        with pytest.raises((dataclasses.FrozenInstanceError, AttributeError, TypeError)):
            attack.truth = None  # type: ignore[attr-defined]

    def test_has_a_name_and_survives_a_pickle(self, attack: Attack) -> None:
        assert attack.name == attack.name.lower().strip() != ""
        assert pickle.loads(pickle.dumps(attack)) == attack

    def test_no_door_for_the_truth(self, attack: Attack) -> None:
        assert type(attack).reconstruct is Attack.reconstruct
        assert type(attack).reconstruct_each is Attack.reconstruct_each
        for method, expected in (
            (attack.accepts, ["release", "knowledge"]),
            (attack.reconstruct, ["release", "knowledge", "rng"]),
            (attack.reconstruct_each, ["releases", "knowledge", "rngs"]),
            (attack._reconstruct, ["release", "knowledge", "rng"]),
            (attack._reconstruct_each, ["releases", "knowledge", "rngs"]),
        ):
            assert list(inspect.signature(method).parameters) == expected

    def test_truth_is_out_of_reach(self, attack: Attack, case: Case) -> None:
        for i in range(len(case.targets)):
            given = (case.releases[i], case.knowledge[i], attack)
            assert holds_record(given, case.targets.x[i]) is None

    # Behaviour on releases it accepts

    def test_accepts_its_cases(self, attack: Attack, case: Case) -> None:
        for release, knowledge in zip(case.releases, case.knowledge, strict=True):
            assert attack.accepts(release, knowledge) is None

    def test_inputs_are_left_alone(self, attack: Attack, case: Case) -> None:
        given = (case.releases[0], case.knowledge[0], attack)
        arrays = reachable_arrays(*given)
        before = [a.tobytes() for a in arrays]
        global_state = np.random.get_state()[1].tobytes()  # noqa: NPY002
        attack.reconstruct(case.releases[0], case.knowledge[0], rng=0)
        assert [a.tobytes() for a in arrays] == before
        assert np.random.get_state()[1].tobytes() == global_state  # noqa: NPY002

    def test_same_seed_same_answer(self, attack: Attack, case: Case) -> None:
        first = answers(attack, case).alone[0]
        np.random.seed(99)  # noqa: NPY002
        assert_identical(first, attack.reconstruct(case.releases[0], case.knowledge[0], rng=0))

    def test_answers_are_well_formed(self, attack: Attack, case: Case) -> None:
        for found, knowledge in zip(answers(attack, case).alone, case.knowledge, strict=True):
            assert found.status.ran, found.message
            assert_well_formed(found, knowledge)

    def test_known_range_is_kept(self, attack: Attack, case: Case) -> None:
        knowledge = replace(case.knowledge[0], value_range=(-0.25, 0.25))
        found = attack.reconstruct(case.releases[0], knowledge, rng=0)
        assert_well_formed(found, knowledge)

    def test_many_are_answered_as_one_by_one(self, attack: Attack, case: Case) -> None:
        found = answers(attack, case)
        for together, alone in zip(found.together, found.alone, strict=True):
            assert_close(together, alone)

    def test_order_does_not_matter(self, attack: Attack, case: Case) -> None:
        back = attack.reconstruct_each(
            case.releases[::-1], case.knowledge[::-1], rngs=streams(case)[::-1]
        )
        for one, other in zip(answers(attack, case).together, back[::-1], strict=True):
            assert_close(one, other)

    def test_bad_neighbours_do_no_harm(self, attack: Attack, case: Case) -> None:
        """A broken and an absurd release in the batch do not change the other answers."""
        absurd = _multiplied(case.releases[0], 1e6)
        batch = [_poisoned(case.releases[0], 0, np.nan), absurd, case.releases[-1]]
        knowledge = [case.knowledge[0], case.knowledge[0], case.knowledge[-1]]
        rngs = [streams(case)[0], streams(case)[0], streams(case)[-1]]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = attack.reconstruct_each(batch, knowledge, rngs=rngs)
        assert found[0].status is Status.INVALID_RELEASE
        assert_close(found[2], answers(attack, case).alone[-1])

    def test_nothing_in_nothing_out(self, attack: Attack) -> None:
        assert attack.reconstruct_each([], [], rngs=[]) == []

    def test_one_stream_a_release(self, attack: Attack, case: Case) -> None:
        with pytest.raises(InputError, match="one knowledge and one stream"):
            attack.reconstruct_each(case.releases, case.knowledge, rngs=[])

    # Behaviour on releases it does not accept

    def test_wrong_kind_is_refused_with_a_reason(
        self, attack: Attack, case: Case, wrong_releases: list[Release]
    ) -> None:
        for release in wrong_releases:
            reason = attack.accepts(release, case.knowledge[0])
            assert reason is not None, f"accepts {release}"
            assert reason.strip()
            found = attack.reconstruct(release, case.knowledge[0], rng=0)
            lacking = isinstance(reason, Lacking)
            status = Status.UNINFORMED if lacking else Status.REFUSED
            assert (found.status, found.message, len(found)) == (status, reason, 0)

    def test_knowing_nothing_is_refused_with_a_reason(self, attack: Attack, case: Case) -> None:
        ignorant = Knowledge(record_shape=case.targets.record_shape)
        found = attack.reconstruct(case.releases[0], ignorant, rng=0)
        assert found.status in (Status.REFUSED, Status.UNINFORMED)
        assert found.message.strip()

    @pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
    def test_broken_numbers_are_named(self, attack: Attack, case: Case, poison: float) -> None:
        release = case.releases[0]
        for i, (name, _) in enumerate(release.arrays()):
            if name in _COUNTS:
                continue
            found = attack.reconstruct(_poisoned(release, i, poison), case.knowledge[0], rng=0)
            assert found.status is Status.INVALID_RELEASE
            assert name in found.message
            assert found.samples.shape == (0, *case.targets.record_shape)

    @pytest.mark.parametrize("factor", [0.0, 1e-200, 1e-6, 1e3, 1e12, 1e200])
    def test_absurd_numbers_are_answered(self, attack: Attack, case: Case, factor: float) -> None:
        """Any finite release gets a well-formed answer, however useless."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = attack.reconstruct(
                _multiplied(case.releases[0], factor), case.knowledge[0], rng=0
            )
        assert_well_formed(found, case.knowledge[0])

    @pytest.mark.parametrize("size", [1e-3, 1.0, 1e3, 1e6])
    def test_random_numbers_are_answered(self, attack: Attack, case: Case, size: float) -> None:
        """A release that no training can produce gets a well-formed answer too."""
        rng = np.random.default_rng(0)
        for _ in range(2):
            release = _replaced(case.releases[0], size, rng)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = attack.reconstruct(release, case.knowledge[0], rng=0)
            assert_well_formed(found, case.knowledge[0])


@dataclasses.dataclass(frozen=True)
class Answers:
    """What an attack answers to the releases of a case: one by one, and all together."""

    alone: list[Reconstruction]
    together: list[Reconstruction]


def answers(attack: Attack, case: Case) -> Answers:
    """Return the answers with the streams 0, 1, …; made once per attack and case."""
    arrays = (a.tobytes() for release in case.releases for _, a in release.arrays())
    known = (type(case), case.name, case.labels_known, case.known_features, case.value_range)
    key = (attack, known, hashlib.sha256(b"".join(arrays)).hexdigest())
    if key not in _ANSWERS:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            alone = [
                attack.reconstruct(release, knowledge, rng=rng)
                for release, knowledge, rng in zip(
                    case.releases, case.knowledge, streams(case), strict=True
                )
            ]
        together = attack.reconstruct_each(case.releases, case.knowledge, rngs=streams(case))
        _ANSWERS[key] = Answers(alone, together)
    return _ANSWERS[key]


_ANSWERS: dict[tuple[Attack, tuple[object, ...], str], Answers] = {}


def streams(case: Case) -> list[np.random.Generator]:
    """Return fresh streams, one per target."""
    return [np.random.default_rng(i) for i in range(len(case.targets))]


def assert_identical(one: Reconstruction, other: Reconstruction) -> None:
    """Assert that two answers are identical bit for bit."""
    assert (one.status, one.message) == (other.status, other.message)
    assert dict(one.stats) == dict(other.stats)
    for name in ("samples", "labels", "confidence", "error_estimate"):
        a, b = getattr(one, name), getattr(other, name)
        assert (a is None) == (b is None), name
        assert a is None or (a.dtype, a.tobytes()) == (b.dtype, b.tobytes()), name


def assert_well_formed(found: Reconstruction, knowledge: Knowledge) -> None:
    """Assert finite candidates of the record's shape and range, best first, with evidence."""
    assert found.samples.shape == (len(found), *knowledge.record_shape)
    assert not found.samples.flags.writeable
    assert np.isfinite(found.samples).all()
    if found.status is Status.CONVERGED:
        assert len(found) > 0
    if knowledge.value_range is not None and len(found):
        low, high = knowledge.value_range
        assert low <= found.samples.min()
        assert found.samples.max() <= high
    if found.confidence is not None:
        assert ((found.confidence >= 0) & (found.confidence <= 1)).all()
        assert (np.diff(found.confidence) <= 0).all(), "not best first"
    if found.error_estimate is not None:
        # Infinity is an honest estimate; NaN is not.
        assert (found.error_estimate >= 0).all()
        assert found.status is not Status.CONVERGED or np.isfinite(found.error_estimate[0])


def assert_close(one: Reconstruction, other: Reconstruction) -> None:
    """Assert that two answers agree up to the rounding that they state themselves."""
    assert one.status is other.status, (one.message, other.message)
    assert len(one) == len(other)
    for i in range(len(one)):
        size, slack = float(np.abs(other.samples[i]).max()), 1e-9
        if one.error_estimate is not None and other.error_estimate is not None:
            ours, theirs = float(one.error_estimate[i]), float(other.error_estimate[i])
            # Below 1e-12 of the record, an estimate consists of rounding errors itself.
            assert ours == pytest.approx(theirs, rel=0.5, abs=1e-12 * size)
            slack = min(1e-9 + 30.0 * ours / max(size, 1e-300), 1e-6)
        if one.confidence is not None and one.confidence[i] < 1e-6:
            # A candidate that the attack itself does not trust may be arbitrarily ill-conditioned.
            slack = 1e-5
        np.testing.assert_allclose(one.samples[i], other.samples[i], rtol=0, atol=slack * size)
    _assert_same_labels(one.labels, other.labels)


def _assert_same_labels(one: np.ndarray | None, other: np.ndarray | None) -> None:
    if one is None or other is None:
        assert one is other
    elif one.dtype.kind == "f":
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-9)
    else:
        np.testing.assert_array_equal(one, other)


def _rebuilt(release: Release, arrays: list[np.ndarray]) -> Release:
    names = [name for name, _ in release.arrays()]
    match release:
        case Outputs():
            return replace(release, queries=arrays[0], values=arrays[1])
        case Weights():
            return Weights(dict(zip(names, arrays, strict=True)))
        case Gradient():
            return replace(release, gradients=dict(zip(names, arrays, strict=True)))
        case Update():
            return replace(release, changes=dict(zip(names, arrays, strict=True)))
        case Transcript():
            return Transcript.of_arrays(dict(zip(names, arrays, strict=True)))


def _poisoned(release: Release, which: int, value: float) -> Release:
    arrays = [np.array(a, dtype=np.float64) for _, a in release.arrays()]
    arrays[which].reshape(-1)[-1] = value
    return _rebuilt(release, arrays)


_COUNTS = ("steps", "members")
"""Whole numbers and truth values, which can't be NaN."""
_OWN = ("queries", "scaler.count", *_COUNTS)
"""Arrays that the adversary provides itself, or checks against its knowledge."""


def _multiplied(release: Release, factor: float) -> Release:
    return _rebuilt(release, [a if n in _OWN else a * factor for n, a in release.arrays()])


def _replaced(release: Release, size: float, rng: np.random.Generator) -> Release:
    return _rebuilt(
        release,
        [a if n in _OWN else size * rng.normal(size=a.shape) for n, a in release.arrays()],
    )
