"""Whole batches unmixed: cocktail party and sparsity, on real images."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.attacks.gradients.analytic.gradient_cases import (
    CLASSES,
    DECIBELS,
    IMAGES,
    attacked,
    decibels,
    image_batch,
    image_step,
    mean_colour_decibels,
)

from exhume.attacks.gradients.analytic import Cocktail, Sparsity
from exhume.metrics import match
from exhume.models import MLP, Activation
from exhume.protocol.reconstruction import Status
from exhume.protocol.records import Records
from exhume.protocol.release import Gradient
from exhume.training import SGD, Training
from exhume.training.gradient import GradientStep
from exhume.training.local_steps import Aggregate


class TestCocktail:
    @pytest.mark.parametrize("count", [2, 8, 24])
    def test_is_exact_behind_a_relu(self, count: int) -> None:
        data = image_batch(count)
        release, knowledge = attacked(image_step(256), data)
        found = Cocktail().reconstruct(release, knowledge, rng=0)
        assert found.status is Status.CONVERGED, found.message
        assert decibels(data, found).min() > 60.0
        assert mean_colour_decibels(data).max() < 20.0
        order = match(data.x, found.samples, DECIBELS).indices
        assert found.labels is not None
        np.testing.assert_array_equal(found.labels[order], data.labels)

    @pytest.mark.parametrize("activation", [Activation.ELU, Activation.TANH, Activation.SIGMOID])
    def test_smooth_activations_by_consistency(self, activation: Activation) -> None:
        data = image_batch(4)
        release, knowledge = attacked(image_step(256, activation), data)
        found = Cocktail().reconstruct(release, knowledge, rng=0)
        assert np.median(decibels(data, found)) > 40.0, found.message
        assert mean_colour_decibels(data).max() < 20.0

    def test_a_trained_network(self) -> None:
        network = MLP((28, 28), 10, (256,), Activation.RELU)
        own = IMAGES.take(np.arange(300))
        training = Training(network, CLASSES, SGD(0.05, 0.9), 10)
        state = training.publish(own, rng=np.random.default_rng(0)).parameters
        data = IMAGES.take(np.arange(1000, 1008))
        release, knowledge = attacked(GradientStep(network, CLASSES, state=dict(state)), data)
        found = Cocktail().reconstruct(release, knowledge, rng=0)
        assert np.median(decibels(data, found)) > 60.0, found.message

    def test_through_secure_aggregation(self) -> None:
        data = image_batch(8)
        clients = Aggregate(image_step(256), 4)
        release = clients.publish(data, rng=np.random.default_rng(0))
        _, knowledge = attacked(image_step(256), data)
        found = Cocktail().reconstruct(release, replace(knowledge, training=clients), rng=0)
        assert decibels(data, found).min() > 60.0

    def test_known_members_are_taken_out(self) -> None:
        data = image_batch(12)
        release, knowledge = attacked(image_step(256, Activation.ELU), data)
        informed = replace(knowledge, fixed_set=data.take(np.arange(9)))
        found = Cocktail().reconstruct(release, informed, rng=0)
        assert len(found) == 3
        assert decibels(data.take([9, 10, 11]), found).min() > 40.0

    @pytest.mark.parametrize(("noise", "reached"), [(1e-4, 75.0), (1e-2, 45.0)])
    def test_a_little_noise_costs_little(self, noise: float, reached: float) -> None:
        """In units of the gradient's root mean square; zeros are still told from the rest."""
        data = image_batch(8)
        release, knowledge = attacked(image_step(256), data)
        rng = np.random.default_rng(0)
        size = noise * float(np.sqrt(np.mean(release.gradients["1.weight"] ** 2)))
        noisy = Gradient(
            {n: a + size * rng.normal(size=a.shape) for n, a in release.gradients.items()}, 8
        )
        found = Cocktail().reconstruct(noisy, knowledge, rng=0)
        assert np.median(decibels(data, found)) > reached, found.message
        assert mean_colour_decibels(data).max() < 20.0

    def test_noise_shows_in_its_own_estimate(self) -> None:
        data = image_batch(4)
        release, knowledge = attacked(image_step(256), data)
        rng = np.random.default_rng(0)
        size = float(np.sqrt(np.mean(release.gradients["1.weight"] ** 2)))
        noisy = Gradient(
            {n: a + size * rng.normal(size=a.shape) for n, a in release.gradients.items()}, 4
        )
        found = Cocktail().reconstruct(noisy, knowledge, rng=0)
        assert found.status is not Status.CONVERGED
        exact = Cocktail().reconstruct(release, knowledge, rng=0)
        assert exact.error_estimate is not None
        assert exact.error_estimate.max() < 1e-3

    def test_copies_are_one_direction(self) -> None:
        data = image_batch(3).take([0, 1, 1, 2])
        release, knowledge = attacked(image_step(256), data)
        found = Cocktail().reconstruct(release, knowledge, rng=0)
        assert found.status is Status.APPROXIMATE
        assert len(found) == 3
        assert "only 3 directions" in found.message
        assert decibels(data.take([0, 1, 3]), found).min() > 60.0

    def test_tables_need_no_edges(self) -> None:
        rng = np.random.default_rng(0)
        data = Records(rng.normal(size=(5, 40)), rng.integers(0, 3, 5))
        network = MLP((40,), 3, (128, 16), Activation.RELU)
        step = GradientStep(network, (0, 1, 2), precision="float64")
        release, knowledge = attacked(step, data)
        found = Cocktail().reconstruct(release, replace(knowledge, value_range=None), rng=0)
        assert found.status is Status.CONVERGED, found.message
        distance = np.abs(found.samples[:, None] - data.x[None]).max(axis=2)
        assert distance.min(axis=0).max() < 1e-6

    def test_too_many_records_are_refused(self) -> None:
        data = image_batch(16)
        release, knowledge = attacked(image_step(16), data)
        found = Cocktail().reconstruct(release, knowledge, rng=0)
        assert found.status is Status.REFUSED
        assert "separates at most 15" in found.message


class TestSparsity:
    @pytest.mark.parametrize("count", [2, 5, 8])
    def test_is_exact_on_small_batches(self, count: int) -> None:
        data = image_batch(count, seed=1)
        release, knowledge = attacked(image_step(256), data)
        found = Sparsity().reconstruct(release, knowledge, rng=0)
        assert found.status is Status.CONVERGED, found.message
        assert decibels(data, found).min() > 60.0
        assert mean_colour_decibels(data).max() < 20.0

    def test_noise_that_is_no_image(self) -> None:
        """Unlike independent components, zeros ask nothing of the records."""
        rng = np.random.default_rng(0)
        data = Records(rng.random((6, 28, 28)), rng.integers(0, 10, 6))
        release, knowledge = attacked(image_step(256), data)
        found = Sparsity().reconstruct(release, knowledge, rng=0)
        assert decibels(data, found).min() > 60.0

    def test_other_activations_are_refused(self) -> None:
        release, knowledge = attacked(image_step(64, Activation.ELU), image_batch(2))
        assert "no ReLU" in str(Sparsity().accepts(release, knowledge))

    def test_large_batches_are_refused(self) -> None:
        release, knowledge = attacked(image_step(64), image_batch(14))
        assert "at most 12" in str(Sparsity().accepts(release, knowledge))
