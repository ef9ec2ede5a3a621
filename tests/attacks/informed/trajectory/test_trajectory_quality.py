"""What comes back of real pictures from models that plain PyTorch code trained."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from exhume.attacks import Oblivious
from exhume.attacks.informed.trajectory import TrajectoryInversion
from exhume.data import load
from exhume.models import MLP, Activation, Initialisation
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.records import Records
from exhume.protocol.release import Weights
from exhume.training import SGD, Batches, Training

MODULES = {Activation.ELU: torch.nn.ELU, Activation.TANH: torch.nn.Tanh}


@dataclass(frozen=True, eq=False)
class Setting:
    """A training, the records that the adversary has, and the targets that it has not."""

    training: Training
    fixed_set: Records
    targets: Records

    def knowledge(self, training: Training | None = None) -> Knowledge:
        return Knowledge(
            record_shape=(28, 28),
            value_range=(0.0, 1.0),
            training=training or self.training,
            fixed_set=self.fixed_set,
        )

    def released(self, i: int) -> Weights:
        """Train by hand in float32: nothing here is the attack's own."""
        training, data = self.training, self.fixed_set.with_record(self.targets.take([i]))
        net = torch.nn.Sequential(
            torch.nn.Flatten(),
            torch.nn.Linear(784, 10),
            MODULES[training.network.activation](),
            torch.nn.Linear(10, 10),
        )
        initial = training.initial.draw(training.network, np.random.default_rng(0))
        with torch.no_grad():
            for parameter, values in zip(net.parameters(), initial.values(), strict=True):
                parameter.copy_(torch.tensor(values))
        x, y = torch.tensor(data.x), torch.tensor(data.y)
        rule = training.optimiser
        optimiser = torch.optim.SGD(net.parameters(), rule.learning_rate, rule.momentum)
        for index in training.steps(len(data), np.random.default_rng(0)):
            part = slice(None) if index is None else torch.as_tensor(index)
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(net(x[part]), y[part]).backward()
            optimiser.step()
        values = [p.detach().numpy().copy() for p in net.parameters()]
        return Weights(dict(zip(initial, values, strict=True)))

    def attacked(
        self, count: int, training: Training | None = None, retries: int = 3
    ) -> list[Reconstruction]:
        return TrajectoryInversion(retries=retries, jacobians=0).reconstruct_each(
            [self.released(i) for i in range(count)],
            [self.knowledge(training)] * count,
            rngs=[np.random.default_rng(i) for i in range(count)],
        )

    def errors(self, found: list[Reconstruction]) -> np.ndarray:
        pairs = zip(found, self.targets.x[: len(found)], strict=True)
        return np.array([np.mean((one.samples[0] - x) ** 2) for one, x in pairs])


def setting(
    rate: float = 0.05,
    *,
    records: int = 100,
    epochs: int = 50,
    activation: Activation = Activation.ELU,
    batches: Batches | None = None,
) -> Setting:
    data = load("fashion-mnist-small").train
    order = np.random.default_rng(11).permutation(len(data))
    network = MLP((28, 28), 10, (10,), activation)
    training = Training(network, tuple(range(10)), SGD(rate, 0.9), epochs, batches)
    return Setting(training, data.take(order[:records]), data.take(order[records : records + 8]))


@pytest.fixture(scope="module")
def solved() -> tuple[Setting, list[Reconstruction]]:
    one = setting()
    return one, one.attacked(6)


def test_pictures_come_back(solved: tuple[Setting, list[Reconstruction]]) -> None:
    one, found = solved
    errors = one.errors(found)
    assert np.median(errors) < 1e-8
    assert (errors < 1e-4).sum() >= 5


def test_better_than_any_guess(solved: tuple[Setting, list[Reconstruction]]) -> None:
    one, found = solved
    blind = Oblivious().reconstruct(one.released(0), one.knowledge(), rng=0).samples[0]
    for x, error in zip(one.targets.x[: len(found)], one.errors(found), strict=True):
        nearest = ((one.fixed_set.x - x) ** 2).mean(axis=(1, 2)).min()
        assert error < 0.1 * min(nearest, np.mean((blind - x) ** 2))


def test_labels_are_found(solved: tuple[Setting, list[Reconstruction]]) -> None:
    one, found = solved
    assert [f.labels[0] for f in found] == list(one.targets.y[: len(found)])


def test_certificates_are_honest(solved: tuple[Setting, list[Reconstruction]]) -> None:
    """What is certified is right, and by about as much as it says."""
    one, found = solved
    for reconstruction, error in zip(found, np.sqrt(one.errors(found)), strict=True):
        if reconstruction.status is Status.CONVERGED:
            assert error < 1e-3
            assert 0.1 < float(reconstruction.error_estimate[0]) / error < 10
        else:
            assert reconstruction.status is Status.NOT_CONVERGED
            assert reconstruction.stats["relative_residual"] > 1e-3


def test_the_floor_is_that_of_single_precision(
    solved: tuple[Setting, list[Reconstruction]],
) -> None:
    """Residuals of right answers end within a few times the predicted rounding."""
    for one in solved[1]:
        if one.status is Status.CONVERGED:
            ratio = one.stats["relative_residual"] / one.stats["residual_floor"]
            assert 0.1 < ratio < 10
        assert one.stats["amplification"] > 0.1
        assert one.stats["steps_with_rising_loss"] >= 0


def test_too_few_iterations_are_not_certified() -> None:
    one = setting()
    attack = TrajectoryInversion(iterations=2, retries=0, jacobians=0)
    found = attack.reconstruct(one.released(0), one.knowledge(), rng=0)
    assert found.status is Status.NOT_CONVERGED
    assert found.confidence[0] == 0


@pytest.mark.parametrize(
    "one",
    [
        setting(activation=Activation.TANH),
        setting(batches=Batches(32), epochs=12),
    ],
    ids=["tanh", "mini-batches"],
)
def test_other_trainings_are_solved(one: Setting) -> None:
    found = one.attacked(3)
    assert (one.errors(found) < 1e-4).sum() >= 2
    certified = [f.status is Status.CONVERGED for f in found]
    assert (one.errors(found)[certified] < 1e-4).all()


@pytest.mark.parametrize(
    "believed",
    [
        setting(0.03).training,
        setting(epochs=40).training,
    ],
    ids=["learning rate", "epochs"],
)
def test_a_wrong_training_is_noticed(believed: Training) -> None:
    """No record explains what another training did, and the answer says so."""
    found = setting().attacked(1, believed, retries=1)[0]
    assert found.status is Status.WRONG_ASSUMPTION
    assert found.confidence[0] == 0


def test_another_initialisation_is_noticed_at_once() -> None:
    one = setting()
    believed = replace(one.training, initial=Initialisation(seed=1))
    found = one.attacked(1, believed)[0]
    assert found.status is Status.WRONG_ASSUMPTION
    assert found.stats["simulations"] == 0
    assert "initialisation" in found.message
