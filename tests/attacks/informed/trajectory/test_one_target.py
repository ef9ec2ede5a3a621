"""Inversion end to end: released models come from plain PyTorch that shares nothing with it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from exhume.attacks.informed.trajectory.one_target.invert import (
    invert_one,
    prepare,
    trained_network,
)
from exhume.attacks.informed.trajectory.one_target.search import Effort
from exhume.data import load, split_records
from exhume.models import CNN, MLP, Activation, Convolution
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge, KnownAttributes
from exhume.protocol.reconstruction import Status
from exhume.protocol.records import Records
from exhume.protocol.release import Answer, Gradient, Outputs, Weights
from exhume.training import GLM, SGD, Adam, Batches, Family, Penalty, Training
from exhume.training.batches import Batches as Order

DIGITS = split_records(load("digits").train, fixed_set=40, shadow_targets=0, targets=6, seed=3)
TRAINING = Training(MLP((8, 8), 10), tuple(range(10)), SGD(0.2, 0.9), epochs=20)
ACTIVATIONS = {Activation.ELU: nn.ELU, Activation.TANH: nn.Tanh}


def victim(training: Training, target: int) -> nn.Module:
    """Train as anybody would: modules, torch.optim, float32; the target is the last record."""
    network = training.network
    activation = ACTIVATIONS[network.activation]
    if isinstance(network, MLP):
        model = nn.Sequential(
            nn.Flatten(), nn.Linear(64, network.hidden[0]), activation(), nn.Linear(10, 10)
        )
    else:
        model = nn.Sequential(
            nn.Unflatten(1, (1, 8)),
            nn.Conv2d(1, 4, 3),
            activation(),
            nn.Conv2d(4, 6, 2, 2),
            activation(),
            nn.Flatten(),
            nn.Linear(54, 10),
        )
    drawn = training.initial.draw(network, np.random.default_rng(0))
    with torch.no_grad():
        for parameter, values in zip(model.parameters(), drawn.values(), strict=True):
            parameter.copy_(torch.tensor(values))
    x = torch.tensor(np.concatenate([DIGITS.fixed_set.x, DIGITS.targets.x[target, None]])).float()
    y = torch.tensor(np.append(DIGITS.fixed_set.labels, DIGITS.targets.labels[target]))
    own = training.optimiser
    if isinstance(own, SGD):
        optimiser = torch.optim.SGD(model.parameters(), own.learning_rate, own.momentum)
    else:
        optimiser = torch.optim.Adam(model.parameters(), own.learning_rate, eps=own.epsilon)
    for rows in order(training, len(x)):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimiser.step()
    return model


def order(training: Training, count: int) -> list[torch.Tensor]:
    if training.batches is None:
        return [torch.arange(count)] * training.epochs
    steps = Order(training.batches.size, training.batches.seed).steps(
        count, training.epochs, np.random.default_rng(0)
    )
    return [torch.tensor(rows) for rows in steps]


def weights(training: Training, model: nn.Module) -> Weights:
    names = training.network.parameter_shapes()
    values = (p.detach().numpy() for p in model.parameters())
    return Weights(dict(zip(names, values, strict=True)))


def knowledge(training: Training = TRAINING, **more: object) -> Knowledge:
    return Knowledge(
        record_shape=(8, 8),
        value_range=(0.0, 1.0),
        training=training,
        fixed_set=DIGITS.fixed_set,
        **more,
    )


def squared_error(samples: np.ndarray, target: int) -> float:
    return float(np.mean((samples[0] - DIGITS.targets.x[target]) ** 2))


@pytest.mark.parametrize("target", range(3))
def test_record_and_label_come_back(target: int) -> None:
    release = weights(TRAINING, victim(TRAINING, target))
    found = invert_one(release, knowledge(), np.random.default_rng(0))
    assert found.status is Status.CONVERGED
    assert found.labels[0] == DIGITS.targets.labels[target]
    assert squared_error(found.samples, target) < 1e-6
    # The attack's own estimate must not promise more than it kept, within an order of magnitude.
    assert found.error_estimate[0] > 0.1 * squared_error(found.samples, target) ** 0.5
    assert found.stats["amplification"] > 0


@pytest.mark.parametrize(
    "training",
    [
        replace(TRAINING, network=MLP((8, 8), 10, activation=Activation.TANH)),
        replace(TRAINING, batches=Batches(16, seed=5), optimiser=SGD(0.05, 0.9), epochs=8),
        replace(
            TRAINING,
            network=CNN((8, 8), 10, (Convolution(4, 3), Convolution(6, 2, 2))),
            optimiser=SGD(0.1, 0.9),
            epochs=8,
        ),
    ],
    ids=["tanh", "batches", "convolutions"],
)
def test_other_trainings_are_inverted(training: Training) -> None:
    release = weights(training, victim(training, 1))
    found = invert_one(release, knowledge(training), np.random.default_rng(0))
    assert found.status is Status.CONVERGED
    assert squared_error(found.samples, 1) < 1e-4
    assert found.labels[0] == DIGITS.targets.labels[1]


def test_a_regression_gives_its_response_away_too() -> None:
    training = replace(TRAINING, network=MLP((8, 8), 1), classes=None, optimiser=SGD(0.02, 0.9))
    rng = np.random.default_rng(0)
    fixed = Records(DIGITS.fixed_set.x, rng.normal(size=40))
    target = Records(DIGITS.targets.x[:1], np.array([0.7]))
    release = training.publish(fixed.with_record(target), rng=rng)
    known = replace(knowledge(training), fixed_set=fixed)
    found = invert_one(release, known, np.random.default_rng(0))
    assert found.status is Status.CONVERGED
    assert squared_error(found.samples, 0) < 1e-4
    assert found.labels[0] == pytest.approx(0.7, abs=1e-2)


def test_what_is_known_is_kept() -> None:
    mask = np.zeros((8, 8), dtype=bool)
    mask[:, :5] = True
    known = knowledge(
        known_attributes=KnownAttributes(mask, DIGITS.targets.x[2]),
        labels=DIGITS.targets.labels[2:3],
    )
    found = invert_one(weights(TRAINING, victim(TRAINING, 2)), known, np.random.default_rng(0))
    assert np.array_equal(found.samples[0][mask], DIGITS.targets.x[2][mask])
    assert squared_error(found.samples, 2) < 1e-6


def test_one_layer_is_enough() -> None:
    whole = weights(TRAINING, victim(TRAINING, 0))
    names = list(whole.parameters)
    release = Weights({name: whole.parameters[name] for name in names[:2]})
    found = invert_one(release, knowledge(), np.random.default_rng(0))
    assert squared_error(found.samples, 0) < 1e-4


@pytest.mark.parametrize("answer", [Answer.SCORES, Answer.PROBABILITIES])
def test_answers_alone_are_enough(answer: Answer) -> None:
    model = victim(TRAINING, 0)
    queries = np.random.default_rng(1).normal(0.3, 1.0, (120, 8, 8))
    scores = model(torch.tensor(queries).float()).detach()
    values = scores if answer is Answer.SCORES else torch.softmax(scores.double(), dim=1)
    release = Outputs(queries, values.numpy(), answer)
    found = invert_one(release, knowledge(), np.random.default_rng(0))
    assert squared_error(found.samples, 0) < 1e-3


def test_work_is_shared_and_the_seed_decides() -> None:
    release = weights(TRAINING, victim(TRAINING, 0))
    prepared = prepare(release, knowledge(), np.random.default_rng(4))
    one = invert_one(release, knowledge(), np.random.default_rng(5), prepared=prepared)
    again = invert_one(release, knowledge(), np.random.default_rng(5), prepared=prepared)
    assert one.samples.tobytes() == again.samples.tobytes()
    assert dict(one.stats) == dict(again.stats)


def test_no_certificate_without_an_answer() -> None:
    """Parameters that no record can have left are not claimed to be explained."""
    rng = np.random.default_rng(0)
    shapes = TRAINING.network.parameter_shapes()
    release = Weights({name: rng.normal(size=shape) for name, shape in shapes.items()})
    found = invert_one(
        release, knowledge(), rng, effort=Effort(attempts=3, jacobians=8, each=2, crossed=1)
    )
    assert found.status is Status.NOT_CONVERGED
    assert "misses the release" in found.message
    assert np.isfinite(found.samples).all()


def test_refusals_say_what_is_missing() -> None:
    release = weights(TRAINING, victim(TRAINING, 0))
    rng = np.random.default_rng(0)
    with pytest.raises(InputError, match="fixed set is not known"):
        invert_one(release, replace(knowledge(), fixed_set=None), rng)
    secret = replace(TRAINING, batches=Batches(16, seed=None))
    with pytest.raises(InputError, match="order of the mini-batches"):
        invert_one(release, knowledge(secret), rng)
    linear = GLM(Family.LOGISTIC, Penalty(1.0), classes=(0, 1))
    with pytest.raises(InputError, match="training of a network"):
        trained_network(replace(knowledge(), training=linear))
    with pytest.raises(InputError, match="weights or outputs"):
        invert_one(Gradient({"a": np.ones(3)}, 1), knowledge(), rng)
    with pytest.raises(InputError, match="has no parameter 'a'"):
        invert_one(Weights({"a": np.ones(3)}), knowledge(), rng)
    with pytest.raises(InputError, match="queries of shape"):
        invert_one(Outputs(np.ones((2, 3)), np.ones((2, 10))), knowledge(), rng)


def test_adam_on_lit_pixels() -> None:
    training = replace(TRAINING, optimiser=Adam(0.01, epsilon=1e-3), epochs=20)
    release = weights(training, victim(training, 0))
    found = invert_one(release, knowledge(training), np.random.default_rng(0))
    assert squared_error(found.samples, 0) < 1e-3
