"""Features unmixed from the first fully connected layer behind convolutions, and inverted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.attacks.gradients.matching.matching_cases import (
    CLASSES,
    attacked,
    errors,
    hidden_layer,
    mean_grey,
    pictures,
)

from exhume.attacks.catalogue import attack_named
from exhume.attacks.gradients.features import matched_cosines
from exhume.attacks.gradients.matching import FeatureInversion
from exhume.attacks.gradients.matching.first_connected import (
    BatchFeatures,
    batch_features,
    first_connected,
)
from exhume.attacks.gradients.matching.problem import MatchableRelease, read
from exhume.models import MLP, Activation
from exhume.models.convnet import ConvNet
from exhume.models.resnet import ResNet
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Status
from exhume.protocol.records import Records
from exhume.protocol.release import Gradient
from exhume.training.gradient import GradientStep
from exhume.training.local_steps import LocalSteps
from exhume.training.optimisers import SGD

DATA = pictures(12, 4)
SMALL = pictures(8, 4)


def reading_of(step: GradientStep, data: Records, *, known: bool = True) -> MatchableRelease:
    release = step.publish(data, rng=np.random.default_rng(0))
    knowledge = Knowledge(
        record_shape=data.record_shape, training=step, labels=data.y if known else None
    )
    found = read(release, knowledge)
    assert isinstance(found, MatchableRelease)
    return found


def true_features(step: GradientStep, layer: str, data: Records) -> np.ndarray:
    objective = step.objective("float64")
    seen: list[torch.Tensor] = []
    hook = objective.module.get_submodule(layer).register_forward_pre_hook(
        lambda _, inputs: seen.append(inputs[0].detach())
    )
    objective.scores(objective.flat(step.parameters()), objective.tensor(data.x))
    hook.remove()
    return seen[0].numpy()


def features_of(step: GradientStep, data: Records, *, known: bool = True) -> BatchFeatures:
    reading = reading_of(step, data, known=known)
    found = batch_features(reading, data.y if known else None, np.random.default_rng(0))
    assert isinstance(found, BatchFeatures), found
    return found


@pytest.mark.parametrize("name", ["hidden_relu", "hidden_sigmoid"])
def test_features_of_a_batch_come_back_in_the_labels_order(name: str) -> None:
    step = hidden_layer(name)
    found = features_of(step, DATA)
    assert (found.route, found.layer) == ("unmixed", "8")
    true = true_features(step, found.layer, DATA)
    # Their scale too: the bias gradient fixes it.
    off = np.linalg.norm(found.features - true, axis=1) / np.linalg.norm(true, axis=1)
    assert off.max() < 1e-2
    assert matched_cosines(true, found.features).cosines.min() > 0.99
    assert found.residual < 1e-2


@pytest.mark.parametrize("first", [0, 50, 150, 200])
@pytest.mark.parametrize("seed", [0, 1])
def test_features_hang_neither_on_the_draws_nor_on_the_last_bit(first: int, seed: int) -> None:
    """Their batches' features are much alike, and records leave mostly the same units at zero."""
    data, step = pictures(12, 4, first), hidden_layer("hidden_relu")
    reading, rng = reading_of(step, data), np.random.default_rng(seed)
    noisy = {n: a * (1.0 + 1e-12 * rng.standard_normal(a.shape)) for n, a in reading.arrays.items()}
    found = batch_features(replace(reading, arrays=noisy), data.y, rng)
    assert isinstance(found, BatchFeatures)
    assert found.residual < 1e-5
    true = true_features(step, found.layer, data)
    off = np.linalg.norm(found.features - true, axis=1) / np.linalg.norm(true, axis=1)
    # A gradient of float32 has 1e-7 to go by, and its mixture a condition below 10.
    assert off.max() < 1e-5


def test_labels_are_found_along() -> None:
    step = hidden_layer("hidden_relu")
    found = features_of(step, DATA, known=False)
    assert sorted(found.labels) == sorted(DATA.y)
    true = true_features(step, found.layer, DATA)
    assert matched_cosines(true, found.features).cosines.min() > 0.99


@pytest.mark.parametrize(
    ("network", "route"),
    [
        (ConvNet((8, 8), 10, width=4), "fixed_point"),
        (ResNet((8, 8), 10, width=6, blocks=(1, 1), wide_head=600), "recovered"),
    ],
)
def test_heads_that_cannot_be_unmixed_are_fitted(network: ConvNet | ResNet, route: str) -> None:
    step = GradientStep(network, CLASSES)
    found = features_of(step, SMALL)
    assert found.route == route
    true = true_features(step, found.layer, SMALL)
    off = np.linalg.norm(found.features - true, axis=1) / np.linalg.norm(true, axis=1)
    assert off.max() < 0.05


def test_images_are_closer_than_their_mean_grey() -> None:
    step = hidden_layer("hidden_relu")
    found = attacked(FeatureInversion(steps=300, restarts=2), step, DATA)
    assert found.status is Status.APPROXIMATE
    assert found.stats["features"] == "unmixed"
    assert float(found.stats["feature_residual"]) < 1e-2
    ours = errors(DATA.x, found.samples)
    assert (ours < mean_grey(DATA.x)).all()
    assert ours.mean() < 0.1 * mean_grey(DATA.x).mean()
    # The residual is what the answer's own gradient leaves of the release.
    release = step.publish(DATA, rng=np.random.default_rng(0))
    own = step.publish(Records(found.samples, found.labels), rng=np.random.default_rng(0))
    pairs = [(a, own.gradients[n]) for n, a in release.gradients.items()]
    left = sum(float(np.square(a - b).sum()) for a, b in pairs)
    whole = sum(float(np.square(a).sum()) for a, _ in pairs)
    assert found.stats["residual"] == pytest.approx(np.sqrt(left / whole), rel=1e-3)


def test_each_image_is_from_the_start_that_served_it_best() -> None:
    step = hidden_layer("hidden_relu")
    attack = FeatureInversion(steps=40, restarts=1)
    one = attacked(attack, step, DATA)
    more = attacked(replace(attack, restarts=3), step, DATA)
    assert float(more.stats["distance"]) < float(one.stats["distance"])


def test_features_that_cannot_be_told_are_not_made_up() -> None:
    """A linear head and two records of a class: only the span of their features is known."""
    data = Records(SMALL.x, np.array([0, 1, 1, 2]))
    found = attacked(FeatureInversion(steps=2), GradientStep(ConvNet((8, 8), 10), CLASSES), data)
    assert found.status is Status.NOT_CONVERGED
    assert len(found.samples) == 0
    assert "labels that all differ" in found.message


class TestRefusals:
    def reason(self, step: GradientStep | LocalSteps, data: Records) -> str:
        found = attacked(FeatureInversion(), step, data)
        assert found.status is Status.REFUSED
        return found.message

    def test_a_network_without_convolutions(self) -> None:
        step = GradientStep(MLP((8, 8), 10, (6,), Activation.RELU), CLASSES)
        assert "has no convolutions" in self.reason(step, SMALL)

    def test_several_local_steps(self) -> None:
        local = LocalSteps(hidden_layer("hidden_relu"), SGD(0.1), epochs=2)
        assert "local steps" in self.reason(local, DATA)

    def test_known_records(self) -> None:
        step = hidden_layer("hidden_relu")
        fixed = DATA.take(slice(0, 2))
        found = attacked(FeatureInversion(), step, DATA, fixed_set=fixed, labels=DATA.y[2:])
        assert "records of the batch are known" in found.message

    def test_a_layer_that_was_not_released(self) -> None:
        step = hidden_layer("hidden_relu")
        whole = step.publish(DATA, rng=np.random.default_rng(0))
        part = Gradient({"10.weight": whole.gradients["10.weight"]}, len(DATA))
        knowledge = Knowledge(record_shape=(12, 12), training=step, labels=DATA.y)
        reason = FeatureInversion().accepts(part, knowledge)
        assert reason is not None
        assert "'8.weight' was not released" in reason

    def test_nonsense_settings(self) -> None:
        with pytest.raises(InputError, match="restarts must be at least 1, got 0"):
            FeatureInversion(restarts=0)


def test_which_layer_is_the_first_connected() -> None:
    layer = first_connected(hidden_layer("hidden_sigmoid").network)
    assert not isinstance(layer, str)
    assert (layer.weight, layer.bias, layer.rectified) == ("8.weight", "8.bias", False)


def test_it_is_known_by_name() -> None:
    assert attack_named("feature-inversion") == FeatureInversion()
