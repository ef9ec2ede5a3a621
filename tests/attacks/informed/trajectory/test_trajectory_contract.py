"""Trajectory inversion against the contract of every attack, on a network small enough for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.contract.attack import AttackContract
from tests.contract.cases import Case

from exhume.attacks import Attack
from exhume.attacks.informed.trajectory import TrajectoryInversion
from exhume.data import load
from exhume.defences import Rounding
from exhume.models import CNN, MLP, Convolution, Initialisation
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Status
from exhume.protocol.records import Records
from exhume.protocol.release import Weights
from exhume.training import SGD, Adam, Batches, Training


def digits(count: int) -> Records:
    data = load("digits").train
    order = np.random.default_rng(3).permutation(len(data))[:count]
    return data.take(order)


def training(**changes: object) -> Training:
    plain = Training(
        MLP((8, 8), 10, (8,)),
        tuple(range(10)),
        SGD(0.1, 0.9),
        epochs=25,
        precision="float64",
    )
    return replace(plain, **changes)


def case(name: str, mechanism: Training, **changes: object) -> Case:
    data = digits(63)
    made = Case(name, mechanism, data.take(np.arange(60)), data.take([60, 61, 62]), (0.0, 1.0))
    return replace(made, **changes)


CASES = (
    case("whole batches", training()),
    case(
        "attributes known",
        training(batches=Batches(31), epochs=12),
        known_features=tuple(range(20)),
    ),
)


class TestTrajectoryInversion(AttackContract):
    @pytest.fixture
    def attack(self) -> Attack:
        return TrajectoryInversion(retries=2, jacobians=0)

    @pytest.fixture(params=CASES, ids=str)
    def case(self, request: pytest.FixtureRequest) -> Case:
        return request.param


@pytest.fixture(scope="module")
def plain() -> Case:
    return CASES[0]


def refusal(release: object, knowledge: Knowledge, *, jacobians: int = 9) -> str:
    attack = TrajectoryInversion(jacobians=jacobians, retrainings=0)
    return str(attack.accepts(release, knowledge))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"fixed_set": None}, "every other training record"),
        ({"training": None}, "training of a network"),
        ({"training": training(initial=Initialisation(seed=None))}, "initial parameters"),
        ({"training": training(batches=Batches(16, seed=None))}, "order of the mini-batches"),
        ({"training": training(network=MLP((8, 8), 10, (9,)))}, "has shape"),
        ({"labels": np.array([1, 2])}, "one record"),
        ({"labels": np.array([77])}, "not one of the model's classes"),
        ({"initial": {"1.weight": np.ones((8, 64))}}, "there is no parameter"),
    ],
)
def test_what_is_missing_is_named(plain: Case, changes: dict[str, object], reason: str) -> None:
    assert reason in refusal(plain.releases[0], replace(plain.knowledge[0], **changes))


def test_other_trainings_are_left_to_the_general_way(plain: Case) -> None:
    known = replace(plain.knowledge[0], training=training(optimiser=Adam(0.01)))
    assert refusal(plain.releases[0], known) == "None"
    assert "gradient descent" in refusal(plain.releases[0], known, jacobians=0)
    network = CNN((8, 8), 10, (Convolution(2, 3),))
    weights = Weights({n: np.zeros(s) for n, s in network.parameter_shapes().items()})
    known = replace(plain.knowledge[0], training=training(network=network))
    assert refusal(weights, known) == "None"
    assert "fully connected" in refusal(weights, known, jacobians=0)


def test_a_given_start_replaces_the_seed(plain: Case) -> None:
    mechanism = plain.mechanism
    start = mechanism.initial.draw(mechanism.network, np.random.default_rng(0))
    hidden = training(initial=Initialisation(seed=None))
    known = replace(plain.knowledge[0], training=hidden, initial=start)
    found = TrajectoryInversion().reconstruct(plain.releases[0], known, rng=0)
    assert found.status is Status.CONVERGED
    np.testing.assert_allclose(found.samples[0], plain.targets.x[0], atol=1e-5)


def test_sees_through_rounding(plain: Case) -> None:
    rounded = case("rounded", Rounding(training(), 6))
    found = TrajectoryInversion(jacobians=0).reconstruct(
        rounded.releases[0], rounded.knowledge[0], rng=0
    )
    error = float(np.sqrt(np.mean((found.samples[0] - plain.targets.x[0]) ** 2)))
    assert found.status is Status.CONVERGED
    assert error < 0.01
    assert 0.1 < float(found.error_estimate[0]) / error < 10


def test_noise_that_hides_the_record_is_not_certified() -> None:
    rounded = case("rounded", Rounding(training(), 1))
    found = TrajectoryInversion(retries=0, jacobians=0).reconstruct(
        rounded.releases[0], rounded.knowledge[0], rng=0
    )
    assert found.status in (Status.APPROXIMATE, Status.NOT_CONVERGED)
    error = float(np.sqrt(np.mean((found.samples[0] - rounded.targets.x[0]) ** 2)))
    assert float(found.error_estimate[0]) > 0.3 * error


def test_a_copy_of_a_known_record_is_found(plain: Case) -> None:
    copy = plain.fixed_set.take([5])
    release = plain.mechanism.publish(
        plain.fixed_set.with_record(copy), rng=np.random.default_rng(0)
    )
    found = TrajectoryInversion(jacobians=0).reconstruct(release, plain.knowledge[0], rng=0)
    assert found.status is Status.CONVERGED
    np.testing.assert_allclose(found.samples[0], copy.x[0], atol=1e-5)
    assert found.labels[0] == copy.y[0]


def test_what_resists_is_left_to_the_general_way(plain: Case) -> None:
    attack = TrajectoryInversion(iterations=2, retries=0, jacobians=20)
    found = attack.reconstruct(plain.releases[1], plain.knowledge[1], rng=0)
    assert found.status is Status.CONVERGED
    assert found.stats["fallback"]
    np.testing.assert_allclose(found.samples[0], plain.targets.x[1], atol=1e-3)
    assert found.labels[0] == plain.targets.y[1]


@pytest.mark.parametrize(
    "settings", [{"iterations": 0}, {"retries": -1}, {"jacobians": -1}, {"retrainings": -1}]
)
def test_settings_are_checked(settings: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least"):
        TrajectoryInversion(**settings)
