"""The parts: factors, proofs by zeros, fixed points, the first layer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.attacks.gradients.analytic.gradient_cases import attacked, image_batch, image_step

from exhume.attacks.gradients.analytic import FirstLayer, relu_separation
from exhume.attacks.gradients.analytic.factorisation import Anderson, Factors, factorise
from exhume.attacks.gradients.analytic.input_layer import Backward, input_layer_of
from exhume.attacks.gradients.analytic.unmixing import edges, unmix
from exhume.models import CNN, MLP, Activation, Network
from exhume.protocol.records import Records
from exhume.training.gradient import GradientStep


def planted(rng: np.random.Generator, records: int, width: int = 120) -> tuple[np.ndarray, Factors]:
    """Δ (width, records) with half of its entries zero, and the factors of Δ X."""
    returned = rng.normal(size=(width, records)) * (rng.random((width, records)) < 0.5)
    x = rng.random((records, 200))
    weight, bias = returned @ x, returned.sum(axis=1)
    return returned, factorise(weight, bias, records, rounding=1e-16)


class TestFactors:
    @settings(max_examples=20, deadline=None)
    @given(st.integers(0, 10_000), st.integers(1, 20))
    def test_the_product_is_the_gradient(self, seed: int, records: int) -> None:
        rng = np.random.default_rng(seed)
        returned, factors = planted(rng, records)
        assert factors.rank == records
        assert factors.excess < 10.0
        # Δ lies in the span of the left factor, and the bias gradient is its sum.
        inside = factors.left @ (factors.left.T @ returned)
        np.testing.assert_allclose(inside, returned, atol=1e-9)

    @pytest.mark.parametrize("claimed", [2, 4])
    def test_more_records_than_claimed_show(self, claimed: int) -> None:
        rng = np.random.default_rng(0)
        weight = rng.normal(size=(50, 6)) @ rng.normal(size=(6, 40))
        found = factorise(weight, weight.sum(axis=1), claimed, rounding=1e-16)
        assert found.excess > 1e6

    def test_noise_is_measured(self) -> None:
        rng = np.random.default_rng(0)
        signal = 100.0 * rng.normal(size=(100, 3)) @ rng.normal(size=(3, 150))
        noisy = signal + 2.0 * rng.normal(size=signal.shape)
        found = factorise(noisy, noisy.sum(axis=1), 3, rounding=1e-12)
        assert found.rank == 3
        assert found.noise * np.abs(noisy).max() == pytest.approx(2.0, rel=0.3)
        assert found.excess < 1.5

    def test_pure_noise_has_no_rank(self) -> None:
        noise = np.random.default_rng(0).normal(size=(60, 80))
        assert factorise(noise, noise.sum(axis=1), 4, rounding=1e-16).rank == 0


class TestZeros:
    @settings(max_examples=15, deadline=None)
    @given(st.integers(0, 10_000), st.integers(2, 12))
    def test_true_columns_are_proved_and_bent_ones_are_not(self, seed: int, records: int) -> None:
        rng = np.random.default_rng(seed)
        returned, factors = planted(rng, records)
        found = relu_separation.neurons(factors)
        column = factors.left.T @ returned[:, 0]
        proved = relu_separation.settled(found, column / np.linalg.norm(column))
        assert proved.shape == (records, 1)
        assert abs(float(proved[:, 0] @ column)) == pytest.approx(np.linalg.norm(column))
        # A direction that is zero at rank − 1 neurons because it was made so.
        chosen = rng.choice(len(found.rows), records - 1, replace=False)
        bent = np.linalg.svd(found.rows[chosen], full_matrices=True)[2][-1]
        zeros = np.abs(found.rows @ bent) < 1e-9
        if zeros.sum() == records - 1:
            assert relu_separation.settled(found, bent).shape[1] == records

    def test_wrong_neurons_lose_their_say(self) -> None:
        rng = np.random.default_rng(1)
        returned, factors = planted(rng, 12, width=300)
        found = relu_separation.neurons(factors)
        believed = returned[found.alive, 3] == 0
        wrong = rng.choice(np.flatnonzero(~believed), 30, replace=False)
        believed[wrong] = True
        sharp = factors.left @ relu_separation.sharpened(found, believed)
        cosine = abs(sharp @ returned[:, 3]) / np.linalg.norm(returned[:, 3])
        assert cosine == pytest.approx(1.0, abs=1e-9)

    def test_a_mixture_of_two_is_taken_apart(self) -> None:
        rng = np.random.default_rng(2)
        returned, factors = planted(rng, 8, width=300)
        found = relu_separation.neurons(factors)
        mixed = factors.left.T @ (returned[:, 0] + 0.7 * returned[:, 1])
        parts = relu_separation.columns(found, mixed / np.linalg.norm(mixed), rng)
        assert len(parts) == 2
        cosines = np.abs(np.array(parts) @ factors.left.T @ returned[:, :2])
        cosines /= np.linalg.norm(returned[:, :2], axis=0)
        np.testing.assert_allclose(np.sort(cosines.max(axis=1)), 1.0, atol=1e-9)


def test_anderson_reaches_a_fixed_point_that_plain_iteration_runs_away_from() -> None:
    """x ← A x + b with an eigenvalue of −1.5: exact once the memory spans the space."""
    matrix, shift = np.diag([-1.5, 0.9, 0.2]), np.array([1.0, 2.0, 3.0])
    fixed = np.linalg.solve(np.eye(3) - matrix, shift)
    mixer, now = Anderson(4), np.zeros(3)
    for _ in range(8):
        now = mixer.next(now, matrix @ now + shift)
    np.testing.assert_allclose(now, fixed, rtol=1e-6)


class TestUnmixing:
    def test_edges_are_mixed_second_differences(self) -> None:
        image = np.arange(12.0).reshape(1, 3, 4) ** 2
        by_hand = [
            image[0, i + 1, j + 1] - image[0, i, j + 1] - image[0, i + 1, j] + image[0, i, j]
            for i in range(2)
            for j in range(3)
        ]
        np.testing.assert_allclose(edges(image.reshape(1, -1), (3, 4))[0], by_hand)
        np.testing.assert_array_equal(edges(image.reshape(1, -1), (12,)), image.reshape(1, -1))

    def test_sparse_sources_are_told_apart(self) -> None:
        rng = np.random.default_rng(0)
        sources = rng.laplace(size=(4, 10_000))
        mixing = rng.normal(size=(4, 4))
        gain = np.abs(unmix(mixing @ sources, (10_000,), rng) @ mixing)
        gain /= gain.max(axis=1, keepdims=True)
        np.testing.assert_array_equal(np.sort(gain.argmax(axis=1)), np.arange(4))
        assert np.sort(gain, axis=1)[:, -2].max() < 0.1


@dataclass(frozen=True)
class Rescaled(Network):
    """Pixels minus 0.3, over 0.2, as pipelines do; then a linear layer with a ReLU."""

    record_shape: tuple[int, ...] = (28, 28)
    outputs: int = 10

    def build(self) -> torch.nn.Module:
        class Normalise(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return (x - 0.3) / 0.2

        layers = (torch.nn.Flatten(), torch.nn.Linear(784, 32), torch.nn.ReLU())
        return torch.nn.Sequential(Normalise(), *layers, torch.nn.Linear(32, 10))

    def describe(self) -> str:
        return "a network behind a normalisation"


class TestInputLayer:
    def test_normalised_records_are_seen_through(self) -> None:
        layer = input_layer_of(Rescaled())
        assert not isinstance(layer, str)
        np.testing.assert_allclose(layer.scale, 5.0)
        np.testing.assert_allclose(layer.offset, -1.5)
        assert layer.rectified
        data = image_batch(1)
        release, knowledge = attacked(GradientStep(Rescaled(), tuple(range(10))), data)
        found = FirstLayer().reconstruct(release, knowledge, rng=0)
        np.testing.assert_allclose(found.samples, data.x, atol=1e-4)

    def test_convolutions_see_only_a_part(self) -> None:
        assert "Conv2d" in str(input_layer_of(CNN((12, 12), 3)))

    @pytest.mark.parametrize("activation", list(Activation))
    def test_only_a_relu_rectifies(self, activation: Activation) -> None:
        layer = input_layer_of(MLP((4, 4), 3, (5,), activation))
        assert not isinstance(layer, str)
        assert layer.rectified == (activation is Activation.RELU)

    def test_what_comes_back_is_autograds(self) -> None:
        step, data = image_step(16, Activation.TANH), image_batch(3)
        layer = input_layer_of(step.network)
        assert not isinstance(layer, str)
        backward = Backward(step, layer, step.parameters())
        found = backward.directions(np.asarray(data.x, dtype=np.float64))
        assert found.shape == (3, 10, 16)
        for i in range(3):
            own = Records(data.x[i : i + 1].astype(np.float64), data.labels[i : i + 1])
            release = step.publish(own, rng=np.random.default_rng(0))
            np.testing.assert_allclose(
                found[i, data.labels[i]], release.gradients["1.bias"], rtol=1e-3, atol=1e-6
            )
