"""The attack on two-layer networks: real images, what it refuses, what it says of itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from exhume.attacks.gradients.features import Features
from exhume.data import load
from exhume.metrics import MSE, score
from exhume.metrics.features import matched_cosines, projection_residual
from exhume.models import MLP, Activation, Initialisation
from exhume.models.two_layer import TwoLayer
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Status
from exhume.protocol.records import Records
from exhume.protocol.release import Gradient, Update, Weights
from exhume.training.gradient import GradientStep
from exhume.training.local_steps import Aggregate

SIDE = 7


def images(count: int, start: int = 0) -> Records:
    """Real images at a quarter of their resolution, (count, 7, 7), with their labels."""
    data = load("fashion-mnist-small").train
    x = np.asarray(data.x[start : start + count], dtype=np.float64)
    return Records(
        x.reshape(count, SIDE, 4, SIDE, 4).mean(axis=(2, 4)),
        data.labels[start : start + count],
    )


def step(activation: Activation = Activation.RELU, width: int = 700) -> GradientStep:
    network = TwoLayer((SIDE, SIDE), 10, width, activation)
    return GradientStep(network, tuple(range(10)), Initialisation(seed=1))


def attacked(mechanism, batch: Records, knowledge: Knowledge, release=None):
    if release is None:
        release = mechanism.publish(batch, rng=np.random.default_rng(0))
    return Features().reconstruct(release, knowledge, rng=0)


def know(mechanism, **more) -> Knowledge:
    return Knowledge(record_shape=(SIDE, SIDE), training=mechanism, **more)


class TestRealImages:
    @pytest.mark.parametrize("activation", [Activation.RELU, Activation.ELU])
    def test_a_batch_comes_back_without_its_labels(self, activation):
        mechanism, batch = step(activation), images(3)
        found = attacked(mechanism, batch, know(mechanism))
        assert found.status is Status.CONVERGED
        reached = score(batch.x, found.samples, MSE())
        # The best constant guess, the mean of other images, is what an attack must beat.
        pool = images(200, 1000)
        blind = score(batch.x, np.repeat(pool.x.mean(axis=0)[None], 3, axis=0), MSE())
        assert (reached < 1e-6 * blind).all()
        assert sorted(found.labels) == sorted(batch.labels)

    def test_eight_images_with_their_labels(self):
        mechanism, batch = step(Activation.ELU), images(8)
        found = attacked(mechanism, batch, know(mechanism, labels=batch.labels))
        assert found.status is Status.CONVERGED
        assert score(batch.x, found.samples, MSE()).max() < 1e-8

    def test_known_records_are_taken_out(self):
        mechanism, batch = step(width=200), images(40)
        fixed, target = batch.take(slice(0, 39)), batch.take(slice(39, 40))
        # Forty records at once would be too many for this width; one beside 39 known is not.
        found = attacked(mechanism, batch, know(mechanism, fixed_set=fixed))
        assert len(found) == 1
        assert found.status is Status.CONVERGED
        assert score(target.x, found.samples, MSE())[0] < 1e-8
        assert found.labels[0] == target.labels[0]

    def test_secure_aggregation_is_a_larger_batch(self):
        mechanism, batch = Aggregate(step(), 2), images(4)
        found = attacked(mechanism, batch, know(mechanism, labels=batch.labels))
        assert score(batch.x, found.samples, MSE()).max() < 1e-8

    def test_a_perceptron_of_the_library(self):
        network = MLP((SIDE, SIDE), 10, (200,), Activation.SOFTPLUS)
        mechanism, batch = GradientStep(network, tuple(range(10)), precision="float64"), images(2)
        found = attacked(mechanism, batch, know(mechanism))
        assert found.status is Status.CONVERGED
        assert score(batch.x, found.samples, MSE()).max() < 1e-6

    @pytest.mark.parametrize("activation", [Activation.RELU, Activation.ELU])
    def test_noise_shows_in_the_error_estimate(self, activation):
        mechanism, batch = step(activation), images(3)
        clean = mechanism.publish(batch, rng=np.random.default_rng(0))
        rng = np.random.default_rng(3)
        size = 0.1 * float(np.sqrt(np.mean(clean.gradients["output.weight"] ** 2)))
        noisy = replace(
            clean,
            gradients={
                n: g + size * rng.standard_normal(g.shape) for n, g in clean.gradients.items()
            },
        )
        knowledge = know(mechanism, labels=batch.labels)
        found = attacked(mechanism, batch, knowledge, noisy)
        errors = np.sqrt(score(batch.x, found.samples, MSE()))
        # With ReLUs, noise leaves two images that are alike several minima: no two starts agree.
        agreed = Status.NOT_CONVERGED if activation is Activation.RELU else Status.CONVERGED
        assert found.status is agreed
        ratio = np.sqrt(np.mean(errors**2)) / np.sqrt(np.mean(found.error_estimate**2))
        assert 0.5 < ratio < 2.0


class TestRefusals:
    mechanism = step()

    def reason(self, release=None, knowledge=None, batch=1) -> str:
        if release is None:
            shapes = self.mechanism.network.parameter_shapes()
            release = Gradient({n: np.ones(s) for n, s in shapes.items()}, batch)
        reason = Features().accepts(release, knowledge or know(self.mechanism))
        assert reason is not None
        return reason

    def test_other_releases(self):
        assert "is not one" in self.reason(Weights({"output.weight": np.ones((10, 700))}))
        assert "is not one" in self.reason(Update({"output.weight": np.ones((10, 700))}, 1, 2))

    def test_an_unknown_network(self):
        assert "which network" in self.reason(knowledge=Knowledge(record_shape=(SIDE, SIDE)))

    def test_a_deep_network(self):
        deep = GradientStep(MLP((SIDE, SIDE), 10, (300, 300)), tuple(range(10)))
        assert "two-layer" in self.reason(knowledge=know(deep))

    def test_secret_parameters(self):
        secret = replace(self.mechanism, initial=Initialisation(seed=None))
        assert "not known" in self.reason(knowledge=know(secret))
        told = know(secret, initial=self.mechanism.parameters())
        release = self.mechanism.publish(images(1), rng=np.random.default_rng(0))
        assert Features().accepts(release, told) is None

    def test_parameters_of_another_network(self):
        given = {n: v[..., :5] for n, v in self.mechanism.parameters().items()}
        assert "shape" in self.reason(knowledge=know(self.mechanism, initial=given))

    def test_the_heads_gradient_withheld(self):
        only_hidden = Gradient({"hidden.weight": np.ones((700, 49))}, 1)
        assert "was not released" in self.reason(only_hidden)
        wrong = Gradient({"output.weight": np.ones((10, 3))}, 1)
        assert "shape" in self.reason(wrong)

    def test_too_large_a_batch(self):
        assert "a wider network" in self.reason(batch=80)
        narrow = step(width=90)
        shapes = narrow.network.parameter_shapes()
        release = Gradient({n: np.ones(s) for n, s in shapes.items()}, 1)
        assert "a wider network" in self.reason(release, know(narrow))

    def test_labels_that_do_not_fit(self):
        assert "2 labels" in self.reason(knowledge=know(self.mechanism, labels=np.array([1, 2])))
        assert "is not one of" in self.reason(knowledge=know(self.mechanism, labels=np.array([77])))

    def test_another_shape_of_record(self):
        assert "shape" in self.reason(
            knowledge=Knowledge(record_shape=(49,), training=self.mechanism)
        )


def test_an_empty_gradient_holds_nothing():
    mechanism = step()
    shapes = mechanism.network.parameter_shapes()
    release = Gradient({n: np.zeros(s) for n, s in shapes.items()}, 2)
    found = Features().reconstruct(release, know(mechanism), rng=0)
    assert (found.status, len(found)) == (Status.NO_INFORMATION, 0)


class TestSimilarity:
    def test_projection_residual(self):
        rng = np.random.default_rng(0)
        features = rng.standard_normal((3, 8))
        mixed = rng.standard_normal((3, 3)) @ features
        assert projection_residual(features, mixed) < 1e-12
        assert projection_residual(features, np.eye(8)[:0]) == pytest.approx(1.0)
        # Against the formula, with a projector formed in full.
        other = rng.standard_normal((2, 8))
        projector = np.eye(8) - np.linalg.pinv(other) @ other
        slow = np.mean([np.linalg.norm(projector @ z) / np.linalg.norm(z) for z in features])
        assert projection_residual(features, other) == pytest.approx(slow)

    def test_too_few_to_match(self):
        with pytest.raises(InputError, match="can't be matched"):
            matched_cosines(np.eye(3), np.eye(3)[:2])

    def test_shapes(self):
        with pytest.raises(InputError, match=r"\(B, d\)"):
            projection_residual(np.eye(3), np.eye(2))
