"""Labels inferred from the last layer."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.attacks.gradients.analytic.gradient_cases import CLASSES, IMAGES, image_batch, image_step

from exhume.attacks.gradients.analytic import infer_labels
from exhume.attacks.gradients.analytic.label_inference import present_classes
from exhume.defences import Noise
from exhume.models import MLP, Activation, Initialisation
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.records import Records
from exhume.protocol.release import Gradient, Weights
from exhume.training import SGD, Batches, Training
from exhume.training.gradient import GradientStep
from exhume.training.local_steps import LocalSteps

SHADOW = IMAGES.take(np.arange(600))
TRAINED_ON = IMAGES.take(np.arange(600, 1200))
REST = IMAGES.take(np.arange(1200, len(IMAGES)))


def known(step: GradientStep, shadow: Records | None = SHADOW) -> Knowledge:
    return Knowledge(
        record_shape=(28, 28), value_range=(0.0, 1.0), training=step, shadow_targets=shadow
    )


def trained(epochs: int) -> GradientStep:
    network = MLP((28, 28), 10, (32,))
    training = Training(network, CLASSES, SGD(0.1, 0.9), epochs)
    state = training.publish(TRAINED_ON, rng=np.random.default_rng(0)).parameters
    return GradientStep(network, CLASSES, state=dict(state))


class TestOneRecord:
    @settings(max_examples=15, deadline=None)
    @given(st.integers(0, len(IMAGES) - 1), st.integers(0, 100))
    def test_any_record_any_parameters(self, which: int, seed: int) -> None:
        """Zhao et al. 2020: with one record only its own class has a negative bias gradient."""
        step = GradientStep(MLP((28, 28), 10, (16,)), CLASSES, Initialisation(seed=seed))
        data = IMAGES.take([which])
        found = infer_labels(
            step.publish(data, rng=np.random.default_rng(0)),
            known(step, None),
            rng=np.random.default_rng(0),
        )
        assert found.labels.tolist() == data.labels.tolist()
        assert found.confidence == 1.0

    def test_from_one_local_step(self) -> None:
        step, data = image_step(16), image_batch(1)
        local = LocalSteps(step, SGD(0.1))
        update = local.publish(data, rng=np.random.default_rng(0))
        knowledge = Knowledge(record_shape=(28, 28), training=local)
        found = infer_labels(update, knowledge, rng=np.random.default_rng(0))
        assert found.labels.tolist() == data.labels.tolist()


class TestBatches:
    @settings(max_examples=15, deadline=None)
    @given(st.lists(st.integers(0, 9), min_size=2, max_size=40), st.integers(0, 50))
    def test_untrained_networks_give_every_count(self, wanted: list[int], seed: int) -> None:
        """Repeats and batches larger than the number of classes included."""
        rng = np.random.default_rng(seed)
        where = [int(rng.choice(np.flatnonzero(REST.labels == label))) for label in wanted]
        step = GradientStep(MLP((28, 28), 10, (64,)), CLASSES, Initialisation(seed=seed))
        release = step.publish(REST.take(where), rng=rng)
        found = infer_labels(release, known(step), rng=rng)
        expected = np.bincount(wanted, minlength=10)
        assert found.counts.sum() == len(wanted)
        assert np.abs(found.counts - expected).sum() <= 2 * np.ceil(len(wanted) / 16)
        np.testing.assert_array_equal(found.labels, np.repeat(np.arange(10), found.counts))

    @pytest.mark.parametrize("count", [4, 16, 60])
    def test_exact_where_untrained(self, count: int) -> None:
        step = image_step(64)
        for seed in range(5):
            rng = np.random.default_rng(seed)
            data = REST.take(rng.choice(len(REST), count, replace=False))
            found = infer_labels(step.publish(data, rng=rng), known(step), rng=rng)
            assert found.labels.tolist() == sorted(data.labels.tolist())
            assert found.confidence > 0.9

    @pytest.mark.parametrize(("shadow", "worst"), [(SHADOW, 0.3), (Records(SHADOW.x), 0.4)])
    def test_a_trained_network_tells_less_and_says_so(self, shadow: Records, worst: float) -> None:
        """Right to two thirds and more; blindly drawn labels of ten classes get about half."""
        step, wrong, confidence = trained(20), 0, []
        for seed in range(10):
            rng = np.random.default_rng(seed)
            data = REST.take(rng.choice(len(REST), 16, replace=False))
            found = infer_labels(step.publish(data, rng=rng), known(step, shadow), rng=rng)
            true = np.bincount(data.labels, minlength=10)
            wrong += int(np.abs(found.counts - true).sum()) // 2
            confidence.append(found.confidence)
        assert wrong / 160 < worst
        assert max(confidence) < 0.6

    def test_without_own_records_it_is_less_sure(self) -> None:
        step, data = image_step(64), image_batch(6)
        release = step.publish(data, rng=np.random.default_rng(0))
        found = infer_labels(release, known(step, None), rng=np.random.default_rng(0))
        assert found.counts.sum() == 6
        assert found.confidence <= 0.5


@pytest.fixture(scope="module")
def rectified() -> GradientStep:
    network = MLP((28, 28), 10, (32,), Activation.RELU)
    training = Training(network, CLASSES, SGD(0.1, 0.9), 20)
    state = training.publish(TRAINED_ON, rng=np.random.default_rng(0)).parameters
    return GradientStep(network, CLASSES, state=dict(state))


class TestPresence:
    """Behind a rectifier, a negative entry of a class's row proves that the class is there."""

    def test_proved_classes_are_in_the_batch(self, rectified: GradientStep) -> None:
        missed = 0
        for seed in range(10):
            rng = np.random.default_rng(seed)
            data = REST.take(rng.choice(len(REST), 8, replace=False))
            release = rectified.publish(data, rng=rng)
            found = present_classes(rectified, release.gradients, known(rectified, None))
            assert found is not None
            assert set(np.flatnonzero(found)) <= set(data.labels.tolist())
            missed += len(set(data.labels.tolist())) - int(found.sum())
        # Records that the network is sure of hardly count in its gradient.
        assert missed <= 8

    def test_labels_of_a_trained_network_are_mostly_right(self, rectified: GradientStep) -> None:
        """Without a record of its own, an adversary still gets nine in ten."""
        right = 0
        for seed in range(10):
            rng = np.random.default_rng(seed)
            data = REST.take(rng.choice(len(REST), 4, replace=False))
            found = infer_labels(rectified.publish(data, rng=rng), known(rectified, None), rng=rng)
            right += (Counter(found.labels.tolist()) & Counter(data.labels.tolist())).total()
        assert right >= 36

    def test_other_layers_and_defences_do_not_tell(self, rectified: GradientStep) -> None:
        data = image_batch(4)
        smooth = GradientStep(MLP((28, 28), 10, (16,), Activation.TANH), CLASSES)
        release = smooth.publish(data, rng=np.random.default_rng(0))
        assert present_classes(smooth, release.gradients, known(smooth)) is None
        noisy = replace(known(rectified), training=Noise(rectified, 1e-3))
        release = rectified.publish(data, rng=np.random.default_rng(0))
        assert present_classes(rectified, release.gradients, noisy) is None


def test_an_absurd_gradient_has_as_many_labels_as_any() -> None:
    """1e12 times too large: still one label per record, at once."""
    step = image_step(16)
    release = step.publish(image_batch(4), rng=np.random.default_rng(0))
    absurd = Gradient({n: 1e12 * a for n, a in release.gradients.items()}, 4)
    assert len(infer_labels(absurd, known(step), rng=np.random.default_rng(0)).labels) == 4


class TestRefusals:
    step = image_step(16)

    @pytest.mark.parametrize(
        ("release", "message"),
        [
            (Weights({"1.weight": np.ones((16, 784))}), "hold no gradient"),
            (Gradient({"1.weight": np.ones((16, 784))}, 2), "was not released"),
            (Gradient({"5.bias": np.ones(9)}, 2), r"has shape \(9,\), not \(10,\)"),
        ],
    )
    def test_what_is_missing_is_named(self, release: Gradient | Weights, message: str) -> None:
        with pytest.raises(InputError, match=message):
            infer_labels(release, known(self.step), rng=np.random.default_rng(0))

    def test_regressions_have_no_classes(self) -> None:
        step = GradientStep(MLP((28, 28), 1), None)
        with pytest.raises(InputError, match="a classifier"):
            infer_labels(
                Gradient({"3.bias": np.ones(1)}, 1), known(step), rng=np.random.default_rng(0)
            )

    def test_several_steps_are_no_gradient(self) -> None:
        local = LocalSteps(self.step, SGD(0.1), 2, Batches(2))
        update = local.publish(image_batch(4), rng=np.random.default_rng(0))
        knowledge = Knowledge(record_shape=(28, 28), training=local)
        with pytest.raises(InputError, match="the update has 4 steps"):
            infer_labels(update, knowledge, rng=np.random.default_rng(0))
