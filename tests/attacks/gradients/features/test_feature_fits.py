"""The fits: gradients against finite differences, and what they recover."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.attacks.gradients.features.batches import Batch, classes, numbers

from exhume.attacks.gradients.features import (
    FeatureSearchSettings,
    Head,
    ResponseKind,
    matched_cosines,
    planted_head,
    projection_residual,
    recover_features,
)
from exhume.attacks.gradients.features.first_order import first_order
from exhume.attacks.gradients.features.fit import Consistent, Free, Held, loss_and_slope
from exhume.attacks.gradients.features.masked_gradient import MaskedGradient, observe
from exhume.models import Activation
from exhume.protocol.errors import InputError


def recovered(batch: Batch, gradient=None, *, labels=True, **options):
    return recover_features(
        batch.gradient if gradient is None else gradient,
        batch.head,
        len(batch.features),
        labels=batch.labels if labels else None,
        rng=np.random.default_rng(0),
        **options,
    )


def worst_cosine(batch: Batch, found) -> float:
    return float(matched_cosines(batch.features, found.features).cosines.min())


def pruned(gradient: np.ndarray, share: float) -> np.ndarray:
    return np.where(np.abs(gradient) < np.quantile(np.abs(gradient), share), 0.0, gradient)


def noisy(gradient: np.ndarray, size: float, seed: int = 0) -> np.ndarray:
    return gradient + size * np.random.default_rng(seed).standard_normal(gradient.shape)


class TestLoss:
    """Values and slopes of the least-squares problem, for every kind of residual."""

    @pytest.mark.parametrize("activation", [Activation.ELU, Activation.GELU, Activation.TANH])
    @pytest.mark.parametrize("kind", ["held", "free", "consistent", "numbers"])
    @pytest.mark.parametrize("share", [0.0, 0.6])
    def test_slope_is_the_derivative(self, activation, kind, share):
        rng = np.random.default_rng(0)
        if kind == "numbers":
            batch = numbers(3, dimension=4, width=40, activation=activation)
        else:
            batch = classes(3, dimension=4, width=40, outputs=5, activation=activation)
        gradient = pruned(noisy(batch.gradient.T, 0.05), share)
        present = gradient != 0
        released = None if present.all() else present
        observed = MaskedGradient(gradient, released, float(np.abs(gradient[present]).min()))
        outputs = batch.gradient.shape[0]
        consistent = Consistent(batch.head, batch.labels, outputs, 2.0)
        residuals = {
            "held": Held(rng.standard_normal((3, outputs))),
            "free": Free(MaskedGradient(observed.gradient, observed.released)),
        }.get(kind, consistent)
        if kind == "free":
            # Free residuals are the best for the released entries alone.
            observed = MaskedGradient(observed.gradient, observed.released)
        at = rng.standard_normal((3, 4))
        value, slope = loss_and_slope(batch.head, observed, at, residuals)
        assert value > 0
        for index in np.ndindex(3, 4):
            step = np.zeros((3, 4))
            step[index] = 1e-6
            up = loss_and_slope(batch.head, observed, at + step, residuals)[0]
            down = loss_and_slope(batch.head, observed, at - step, residuals)[0]
            assert slope[index] == pytest.approx((up - down) / 2e-6, rel=1e-4, abs=1e-7)

    def test_free_residuals_are_least_squares_over_what_was_released(self):
        batch = classes(3, dimension=4, width=60, outputs=4)
        observed = observe(pruned(noisy(batch.gradient.T, 0.1), 0.5))
        values, _ = batch.head.hidden(np.random.default_rng(1).standard_normal((3, 4)))
        found = Free(observed).at(values)
        for k in range(4):
            rows = observed.released[:, k]
            slow = np.linalg.lstsq(values[rows], observed.gradient[rows, k], rcond=None)[0]
            np.testing.assert_allclose(found[:, k], slow, rtol=1e-6)

    def test_the_loss_is_zero_at_the_truth(self):
        batch = classes(4)
        observed = observe(batch.gradient.T)
        consistent = Consistent(batch.head, batch.labels, 10, 4.0)
        assert loss_and_slope(batch.head, observed, batch.features, consistent)[0] < 1e-25


class TestObserved:
    """Zeros of a defence, and zeros of inactive units."""

    def test_inactive_units_are_no_defence(self):
        # One record: every second ReLU is silent.
        batch = classes(1)
        assert (batch.gradient == 0).mean() > 0.4
        assert observe(batch.gradient.T).released is None

    @pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
    def test_pruning_by_size_is_seen_with_its_threshold(self, share):
        gradient = pruned(classes(4).gradient.T, share)
        observed = observe(gradient)
        np.testing.assert_array_equal(observed.released, gradient != 0)
        assert observed.threshold == np.abs(gradient[gradient != 0]).min()

    def test_pruning_of_a_single_output_is_seen_by_its_gap(self):
        gradient = pruned(numbers(3).gradient.T, 0.5)
        assert observe(gradient).threshold == np.abs(gradient[gradient != 0]).min()
        assert observe(numbers(3).gradient.T).released is None

    def test_random_dropping_says_nothing_of_the_dropped(self):
        gradient = classes(4).gradient.T * (np.random.default_rng(0).random((1024, 10)) > 0.3)
        observed = observe(gradient)
        assert observed.released is not None
        assert observed.threshold == np.inf


class TestFirstOrder:
    def test_is_the_regression_on_weights_and_a_constant(self):
        batch = classes(4, width=300)
        found = first_order(batch.head, batch.gradient.T)
        design = np.column_stack([batch.head.weights, np.ones(300)])
        slow = np.linalg.lstsq(design, batch.gradient.T, rcond=None)[0]
        np.testing.assert_allclose(found.slopes, slow[:-1], atol=1e-7)
        np.testing.assert_allclose(found.intercept, slow[-1], atol=1e-7)
        assert np.abs(design.T @ found.rest).max() < 1e-5

    @pytest.mark.parametrize("count", [1, 4, 8])
    def test_span_of_distinct_labels(self, count):
        # Aim: ≤ .12 at d = 512, m = 16384; the same d/m here.
        batch = classes(count, dimension=64, width=2048)
        span = first_order(batch.head, batch.gradient.T).span(count)
        assert projection_residual(batch.features, span) < 0.12


class TestUndefended:
    @pytest.mark.parametrize("count", [1, 2, 4, 8])
    def test_distinct_labels(self, count):
        batch = classes(count)
        found = recovered(batch)
        assert projection_residual(batch.features, found.features) < 1e-6
        assert worst_cosine(batch, found) > 1 - 1e-9
        assert found.certain
        assert found.norms_known

    def test_lengths_of_a_homogeneous_activation(self):
        batch = classes(4)
        longer = batch.features * np.array([0.3, 1.0, 2.0, 3.0])[:, None]
        gradient = batch.head.gradient(longer, batch.labels, 10).T
        found = recovered(batch, gradient)
        order = matched_cosines(longer, found.features).indices
        np.testing.assert_allclose(found.features[order], longer, atol=1e-6)
        np.testing.assert_array_equal(found.labels[order], batch.labels)

    def test_without_the_output_weights_only_directions(self):
        batch = classes(4)
        blind = Head(weights=batch.head.weights)
        found = recover_features(
            batch.gradient, blind, 4, labels=batch.labels, rng=np.random.default_rng(0)
        )
        assert worst_cosine(batch, found) > 1 - 1e-9
        assert not found.norms_known
        np.testing.assert_allclose(np.linalg.norm(found.features, axis=1), 1.0)

    def test_repeated_labels_and_more_records_than_classes(self):
        batch = classes(14, repeats=True, alike=0.8)
        assert len(np.unique(batch.labels)) < 10
        found = recovered(batch)
        assert worst_cosine(batch, found) > 1 - 1e-6

    @pytest.mark.parametrize(
        "activation",
        [Activation.RELU, Activation.ELU, Activation.TANH, Activation.SIGMOID, Activation.GELU],
    )
    def test_labels_inferred(self, activation):
        batch = classes(4, activation=activation, repeats=True, alike=0.5)
        found = recovered(batch, labels=False)
        matched = matched_cosines(batch.features, found.features)
        assert matched.cosines.min() > 1 - 1e-6
        np.testing.assert_array_equal(found.labels[matched.indices], batch.labels)

    @pytest.mark.parametrize("activation", [Activation.RELU_PLUS_TANH, Activation.RELU])
    def test_the_squared_error(self, activation):
        batch = numbers(3, activation=activation)
        found = recovered(batch)
        assert worst_cosine(batch, found) > 1 - 1e-6
        assert found.labels is None
        assert found.norms_known == (activation is Activation.RELU_PLUS_TANH)

    def test_one_number_fixes_one_length(self):
        batch = numbers(1, activation=Activation.RELU)
        longer = 1.7 * batch.features
        gradient = batch.head.gradient(longer, batch.labels, 1).T
        found = recovered(batch, gradient)
        assert found.norms_known
        np.testing.assert_allclose(found.features, longer, atol=1e-6)

    def test_weights_of_any_scale_and_hidden_biases(self):
        batch, rng = classes(3, activation=Activation.ELU), np.random.default_rng(5)
        head = Head(
            weights=batch.head.weights * 0.1,
            activation=Activation.ELU,
            offsets=0.3 * rng.standard_normal(1024),
            output=batch.head.output,
            output_offsets=rng.standard_normal(10),
        )
        longer = 12.0 * batch.features
        gradient = head.gradient(longer, batch.labels, 10).T
        found = recover_features(gradient, head, 3, labels=batch.labels, rng=rng)
        order = matched_cosines(longer, found.features).indices
        np.testing.assert_allclose(found.features[order], longer, atol=1e-4)

    def test_a_planted_head(self):
        # Appendix F: trained units beside random ones, output k weighing each of them k/v.
        rng = np.random.default_rng(6)
        trained = rng.standard_normal((100, 24)) @ np.diag(np.linspace(0.1, 2.0, 24))
        output = rng.standard_normal((10, 100)) / 100
        weights, outputs, random = planted_head(
            trained, output, width=900, feature_norm=4.0, rng=rng
        )
        assert random.sum() == 800
        np.testing.assert_array_equal(
            outputs[:, 100:], np.outer(np.arange(10), np.ones(800)) / 3200
        )
        head = Head(weights=weights, output=outputs, random=random)
        features = 4.0 * np.abs(rng.standard_normal((4, 24))) / np.sqrt(24)
        labels = np.array([1, 5, 5, 9])
        gradient = head.gradient(features, labels, 10).T
        found = recover_features(gradient, head, 4, labels=labels, rng=rng)
        assert matched_cosines(features, found.features).cosines.min() > 1 - 1e-6


class TestDefended:
    def test_noise_leaves_the_error_that_the_fit_expects(self):
        batch = classes(4)
        errors, estimates = [], []
        for seed in range(4):
            found = recovered(batch, noisy(batch.gradient, 0.01, seed))
            order = matched_cosines(batch.features, found.features).indices
            errors.append(np.sqrt(np.mean((found.features[order] - batch.features) ** 2)))
            estimates.append(np.sqrt(np.mean(found.error_estimate**2)))
        assert 0.7 < np.mean(errors) / np.mean(estimates) < 1.4

    def test_error_is_proportional_to_noise(self):
        batch = classes(4)
        small, large = (
            projection_residual(
                batch.features, recovered(batch, noisy(batch.gradient, size)).features
            )
            for size in (0.001, 0.01)
        )
        assert 8 < large / small < 12

    @pytest.mark.parametrize("count", [1, 4])
    def test_pruning_nine_tenths_hides_nothing(self, count):
        # Zeros taken for data leave .104 at d = 512 and .48 in the paper's Table 2 (p = .7).
        batch = classes(count, dimension=32, width=2048)
        found = recovered(batch, pruned(batch.gradient, 0.9))
        assert projection_residual(batch.features, found.features) < 1e-5

    def test_clipping_hides_nothing_but_the_length(self):
        batch = classes(4)
        found = recovered(batch, 0.2 * batch.gradient)
        assert worst_cosine(batch, found) > 1 - 1e-6

    def test_random_numbers_are_not_called_certain(self):
        batch = classes(3, dimension=8, width=128)
        noise = np.random.default_rng(0).standard_normal(batch.gradient.shape)
        settings = FeatureSearchSettings(restarts=2, iterations=60, shakes=1)
        found = recovered(batch, noise, settings=settings)
        assert found.loss > 0.5
        assert not found.certain


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.booleans())
def test_whatever_the_batch_an_exact_fit_is_the_batch(seed, count, repeats):
    """What the attack calls exact is right: no false certificate."""
    batch = classes(count, dimension=10, width=400, outputs=5, repeats=repeats, seed=seed)
    found = recovered(batch, settings=FeatureSearchSettings(restarts=3, shakes=4))
    if found.loss < 1e-9:
        assert worst_cosine(batch, found) > 0.9999
    assert found.features.shape == (count, 10)


class TestErrors:
    @pytest.mark.parametrize(
        ("gradient", "size", "message"),
        [
            (np.zeros((3, 4)), 1, r"shape \(outputs, 1024\)"),
            (np.zeros((10, 1024)), 1, "all zeros"),
            (np.ones((10, 1024)), 0, "at least 1, got 0"),
            (np.full((10, 1024), np.nan), 1, "NaN"),
        ],
    )
    def test_gradient(self, gradient, size, message):
        with pytest.raises(InputError, match=message):
            recover_features(gradient, classes(1).head, size, rng=np.random.default_rng(0))

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"weights": np.zeros((4, 3))}, "all 0"),
            ({"weights": np.ones(3)}, "2 dimension"),
            ({"offsets": np.ones(3)}, r"offsets must have shape \(4,\)"),
            ({"output": np.ones((2, 3))}, r"\(outputs, 4\)"),
        ],
    )
    def test_head(self, change, message):
        with pytest.raises(InputError, match=message):
            Head(**({"weights": np.ones((4, 3)), "response": ResponseKind.CLASSES} | change))

    def test_settings(self):
        with pytest.raises(InputError, match="restarts must be at least 1"):
            FeatureSearchSettings(restarts=0)

    def test_planted_head(self):
        trained, output, rng = np.ones((5, 2)), np.ones((3, 5)), np.random.default_rng(0)
        with pytest.raises(InputError, match="no random unit"):
            planted_head(trained, output, width=5, feature_norm=1.0, rng=rng)
        with pytest.raises(InputError, match="feature_norm"):
            planted_head(trained, output, width=9, feature_norm=0.0, rng=rng)
