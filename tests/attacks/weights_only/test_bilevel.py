"""Bilevel reconstruction: its hypergradient, and where it ends for which start."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from exhume.attacks.weights_only.bilevel import Bilevel
from exhume.attacks.weights_only.bilevel.affine import AffineLevel
from exhume.attacks.weights_only.bilevel.hidden import HiddenLevel
from exhume.attacks.weights_only.bilevel.network import NetworkLevel
from exhume.attacks.weights_only.read_weights import HiddenLayer, read_any
from exhume.attacks.weights_only.starts import GaussianStart, GivenStart, MixedStart, UniformStart
from exhume.data import load
from exhume.models.base import Activation
from exhume.models.mlp import MLP
from exhume.models.two_layer import TwoLayer
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.records import Records
from exhume.protocol.release import Gradient, Weights
from exhume.training import SGD, DPClipping, Training
from exhume.training.stationary import Stationary

COUNT = 30


def small(count: int, *, skip: int = 0) -> Records:
    """Embedded pictures at quarter resolution, odd against even classes."""
    train = load("fashion-mnist-small").train
    x = train.x.reshape(-1, 7, 4, 7, 4).mean(axis=(2, 4)).astype(np.float64)
    odd = train.labels % 2
    index = np.concatenate([np.flatnonzero(odd == k)[skip : skip + count // 2] for k in (0, 1)])
    return Records(x[index], odd[index])


def test_the_affine_hypergradient_agrees_with_finite_differences():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(7, 5))
    level = AffineLevel(np.array([1.0, -1, 1, -1, 1, 1, -1]), 0.05)
    target = rng.normal(size=6)

    def value(records):
        gap = level.train(records) - target
        return float(gap @ gap)

    found, gradient = level.hypergradient(x, level.train(x), target)
    assert found == pytest.approx(value(x), rel=1e-12)
    for i, j in ((0, 0), (3, 4), (6, 2)):
        step = np.zeros_like(x)
        step[i, j] = 1e-5
        difference = (value(x + step) - value(x - step)) / 2e-5
        assert gradient[i, j] == pytest.approx(difference, rel=1e-7, abs=1e-8)


def test_affine_training_ends_where_its_gradient_is_zero():
    rng = np.random.default_rng(1)
    x, signs = rng.normal(size=(9, 40)), np.where(np.arange(9) % 2, 1.0, -1.0)
    theta = AffineLevel(signs, 1e-2).train(x)
    design = np.column_stack([x, np.ones(9)])
    chance = 1.0 / (1.0 + np.exp(signs * (design @ theta)))
    assert np.abs(-design.T @ (signs * chance) / 9 + 1e-2 * theta).max() < 1e-13


def test_a_networks_hypergradient_agrees_with_finite_differences():
    rng = np.random.default_rng(2)
    network = TwoLayer((4,), 1, 3, Activation.TANH, hidden_bias=True)
    training = Stationary(network, (0, 1), weight_decay=0.1)
    level = NetworkLevel(training, torch.tensor([0, 1, 0, 1, 1]), steps=2000, products=100)
    x = torch.tensor(rng.normal(size=(5, 4)))
    start = torch.tensor(rng.normal(size=level.objective.size))
    target = torch.tensor(rng.normal(size=level.objective.size))

    def trained(records, theta):
        # L-BFGS stops where the loss no longer changes; Newton's steps go on to rounding error.
        theta = level.train(records, theta)
        for _ in range(6):

            def loss(at):
                return training.loss(level.objective, at, records, level.classes)

            slope = torch.autograd.functional.jacobian(loss, theta)
            hessian = torch.autograd.functional.hessian(loss, theta)
            theta = theta - torch.linalg.solve(hessian, slope)
        return theta

    theta = trained(x, start)
    _, gradient = level.hypergradient(x, theta, target)
    for i, j in ((0, 0), (2, 3), (4, 1)):
        step = torch.zeros_like(x)
        step[i, j] = 1e-4
        ends = [trained(x + sign * step, theta) for sign in (1, -1)]
        values = [float((end - target).square().sum()) for end in ends]
        assert float(gradient[i, j]) == pytest.approx((values[0] - values[1]) / 2e-4, rel=1e-6)


def hidden_layer(outputs: int, bias: bool, seed: int) -> tuple[HiddenLevel, torch.Tensor]:
    """The level of a small network with random parameters, and two records."""
    rng = np.random.default_rng(seed)
    network = TwoLayer((6,), outputs, 2, hidden_bias=True, output_bias=bias)
    values = {n: rng.normal(size=s) for n, s in network.parameter_shapes().items()}
    training = Stationary(network, tuple(range(max(2, outputs))), weight_decay=0.05)
    target = read_any(Weights(values), Knowledge(record_shape=(6,), training=training))
    assert isinstance(target, HiddenLayer)
    level = HiddenLevel(training, target, torch.tensor([0, 1]), steps=3000, products=200)
    return level, torch.tensor(rng.normal(size=(2, 6)))


def test_a_training_that_begins_at_the_release_forgets_the_ones_before():
    level, x = hidden_layer(2, True, 0)
    level.warm = False
    value, gradient = level.evaluate(x)
    level.evaluate(-x)
    again, same = level.evaluate(x)
    assert again == value
    assert torch.equal(same, gradient)
    level.warm = True
    level.evaluate(-x)
    assert level.evaluate(x)[0] != value


def whole_hypergradient(level: HiddenLevel, x: torch.Tensor) -> torch.Tensor:
    """The implicit function theorem on the whole network, with its Hessian written out."""
    first, output, bias = level.trained()
    network = NetworkLevel(level.training, level.classes).objective
    ends = [[first, output, bias], [level.first, level.output, level.bias]]
    theta, target = (
        torch.cat([w[:, :-1].ravel(), w[:, -1], a.ravel(), *([] if c is None else [c])])
        for w, a, c in ends
    )

    def loss(at, records):
        return level.training.loss(network, at, records, level.classes)

    hessian = torch.autograd.functional.hessian(lambda at: loss(at, x), theta)
    assert float(torch.linalg.eigvalsh(hessian)[0]) > 1e-3
    p = torch.linalg.solve(hessian, 2.0 * (theta - target))
    x, theta = x.clone().requires_grad_(), theta.clone().requires_grad_()
    (slope,) = torch.autograd.grad(loss(theta, x), theta, create_graph=True)
    return -torch.autograd.grad(slope, x, p)[0]


@pytest.mark.parametrize(
    ("outputs", "bias", "seed"), [(1, False, 3), (1, True, 5), (3, True, 2), (3, True, 4)]
)
def test_a_hidden_layer_among_the_records_is_the_whole_networks(outputs, bias, seed):
    level, x = hidden_layer(outputs, bias, seed)
    value, gradient = level.evaluate(x)
    wanted = whole_hypergradient(level, x)
    assert torch.allclose(gradient, wanted, rtol=1e-7, atol=1e-8 * float(wanted.abs().max()))
    first, output, bias_ = level.trained()
    gaps = [first - level.first, output - level.output]
    if bias_ is not None:
        gaps.append(bias_ - level.bias)
    assert value == pytest.approx(sum(float(gap.square().sum()) for gap in gaps), rel=1e-9)


# Trained networks of ReLUs rest on kinks, where nothing is differentiable; these two don't.
@pytest.mark.parametrize(("outputs", "bias", "seed"), [(1, False, 6), (3, True, 0)])
def test_a_hidden_layers_hypergradient_agrees_with_finite_differences(outputs, bias, seed):
    level, x = hidden_layer(outputs, bias, seed)
    _, gradient = level.evaluate(x)
    for i, j in ((0, 0), (1, 2), (1, 5)):
        step = torch.zeros_like(x)
        # L-BFGS leaves a gradient of 1e-8: a smaller step would measure that.
        step[i, j] = 3e-3
        ends = [level.evaluate(x + sign * step)[0] for sign in (1, -1)]
        difference = (ends[0] - ends[1]) / 6e-3
        assert float(gradient[i, j]) == pytest.approx(difference, rel=1e-3)


def test_two_outputs_are_one_difference():
    rng = np.random.default_rng(3)
    data = Records(rng.uniform(size=(8, 5)), np.arange(8) % 2)
    training = Stationary(MLP((5,), 2, hidden=()), (0, 1), weight_decay=0.05)
    release = Weights({"1.weight": rng.normal(size=(2, 5)), "1.bias": rng.normal(size=2)})
    known = Knowledge(record_shape=(5,), training=training, labels=data.labels)
    attack = Bilevel(start=GivenStart(data.x), steps=1)
    exact = attack.reconstruct(release, known, rng=0).stats["initial_distance"]
    level = NetworkLevel(training, torch.tensor(data.labels), steps=2000)
    target = level.objective.flat(release.parameters)
    theta = level.train(torch.tensor(data.x), target)
    assert exact == pytest.approx(float((theta - target).square().sum()), rel=1e-8)


@pytest.fixture(scope="module")
def affine():
    data = small(COUNT)
    training = Stationary(MLP((7, 7), 1, hidden=()), (0, 1), weight_decay=1e-2)
    release = training.publish(data, rng=np.random.default_rng(0))
    known = Knowledge(
        record_shape=(7, 7), value_range=(0.0, 1.0), training=training, labels=data.labels
    )
    return data, release, known


def nearest(samples, records):
    gaps = samples.reshape(len(samples), 1, -1) - records.reshape(1, len(records), -1)
    return np.sqrt(np.square(gaps).mean(axis=2)).min(axis=1)


def test_a_start_at_the_training_records_stays(affine):
    data, release, known = affine
    found = Bilevel(start=GivenStart(data.x), steps=60).reconstruct(release, known, rng=0)
    assert found.stats["moved"] < 0.01
    assert found.stats["distance"] < 1e-4 * found.stats["size"]


def test_a_start_at_another_partition_ends_there_with_nearly_the_same_parameters(affine):
    data, release, known = affine
    other = small(COUNT, skip=300)
    found = Bilevel(start=GivenStart(other.x), steps=300).reconstruct(release, known, rng=0)
    assert found.stats["distance"] < 0.02 * found.stats["initial_distance"]
    own, truth = nearest(found.samples, other.x), nearest(found.samples, data.x)
    assert (own < truth).mean() > 0.9
    assert np.median(own) < 0.7 * np.median(truth)


def test_a_hidden_layer_is_attacked_alike():
    data, other = small(10), small(10, skip=300)
    network = TwoLayer((7, 7), 1, 12, hidden_bias=True, output_bias=True)
    training = Stationary(network, (0, 1), weight_decay=1e-2)
    release = training.publish(data, rng=np.random.default_rng(0))
    known = Knowledge(
        record_shape=(7, 7), value_range=(0.0, 1.0), training=training, labels=data.labels
    )
    attack = Bilevel(start=GivenStart(other.x), steps=60, lower_steps=20)
    found = attack.reconstruct(release, known, rng=0)
    assert found.stats["distance"] < found.stats["initial_distance"]
    assert (nearest(found.samples, other.x) < nearest(found.samples, data.x)).mean() > 0.8


def test_the_starts_are_what_they_say():
    rng = np.random.default_rng(0)
    one, other = np.full((3, 2), 0.25), np.full((2, 2), 0.75)
    assert np.array_equal(GivenStart(other).draw(3, (2,), rng), np.full((3, 2), 0.75))
    mixed = MixedStart(
        GivenStart(one), GivenStart(other), UniformStart(0.5, 0.5000001), first=0.2, second=0.5
    )
    wanted = 0.5 * (0.2 * 0.25 + 0.8 * 0.75) + 0.5 * 0.5
    assert mixed.draw(2, (2,), rng) == pytest.approx(np.full((2, 2), wanted), abs=1e-6)
    assert GaussianStart(3.0).draw(4000, (2,), rng).std() == pytest.approx(3.0, rel=0.05)
    assert UniformStart(2.0, 4.0).draw(4000, (2,), rng).mean() == pytest.approx(3.0, rel=0.02)
    with pytest.raises(InputError, match="shape"):
        GivenStart(one).draw(3, (4,), rng)
    for wrong in (
        lambda: UniformStart(1.0, 1.0),
        lambda: GaussianStart(0.0),
        lambda: MixedStart(GivenStart(one), GivenStart(other), first=1.5),
        lambda: GivenStart(np.empty((0, 2))),
    ):
        with pytest.raises(InputError):
            wrong()


def test_what_it_refuses_it_names(affine):
    _, release, known = affine
    assert "Gradient" in str(Bilevel().accepts(Gradient({"a": np.ones(2)}, 1), known))
    assert "1.bias" in str(
        Bilevel().accepts(Weights({"1.weight": release.parameters["1.weight"]}), known)
    )
    unlabelled = Knowledge(record_shape=(7, 7), training=known.training)
    assert "number of records" in str(Bilevel().accepts(release, unlabelled))
    network = MLP((7, 7), 2, hidden=(), activation=Activation.RELU)
    values = {n: np.ones(s) for n, s in network.parameter_shapes().items()}
    plain = Training(network, (0, 1), SGD(0.1))
    noisy = replace(plain, optimiser=SGD(0.1, 0.0, 1e-2), clipping=DPClipping(1.0, 0.0))
    for training, reason in ((plain, "weight decay"), (noisy, "clipped")):
        named = replace(known, training=training)
        assert reason in str(Bilevel().accepts(Weights(values), named))
    decayed = replace(known, training=replace(plain, optimiser=SGD(0.1, 0.0, 1e-2)))
    assert Bilevel().accepts(Weights(values), decayed) is None
    with pytest.raises(InputError, match="rate"):
        Bilevel(rate=0.0)
