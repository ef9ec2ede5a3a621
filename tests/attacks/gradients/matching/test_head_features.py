"""Features of a batch, from its head's gradient, and the weights of the terms they enter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from exhume.attacks.gradients.features import matched_cosines, projection_residual
from exhume.attacks.gradients.matching import LiuMatching
from exhume.attacks.gradients.matching.head_features import (
    Route,
    gradient_span,
    head_features,
    wide_head,
)
from exhume.attacks.gradients.matching.loop import Descent
from exhume.attacks.gradients.matching.objectives import LayerCosine
from exhume.attacks.gradients.matching.optimisers import SignedAdam
from exhume.attacks.gradients.matching.priors import Pixels
from exhume.attacks.gradients.matching.problem import MatchableRelease, problem_of, read
from exhume.attacks.gradients.matching.term_weights import (
    FURTHEST,
    SHARES,
    USUAL,
    TermWeights,
    balanced_weights,
    chosen_weights,
)
from exhume.data import load
from exhume.models import MLP, Activation
from exhume.models.convnet import ConvNet
from exhume.models.resnet import ResNet
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.records import Records
from exhume.training.batch_statistics import batch_statistics
from exhume.training.gradient import GradientStep

CLASSES = tuple(range(10))
LINEAR = GradientStep(ConvNet((8, 8), 10, width=4), CLASSES, precision="float64")
WIDE = GradientStep(ResNet((8, 8), 10, width=6, blocks=(1, 1), wide_head=600), CLASSES)


def batch(labels: tuple[int, ...]) -> Records:
    """Real images with these labels."""
    records = load("fashion-mnist-small").train
    left = {label: list(np.flatnonzero(records.labels == label)) for label in set(labels)}
    chosen = [left[label].pop(0) for label in labels]
    return Records(records.x[chosen][:, 2:26:3, 2:26:3].astype(np.float64), records.y[chosen])


def reading_of(step: GradientStep, data: Records, *, labels: bool = True) -> MatchableRelease:
    release = step.publish(data, rng=np.random.default_rng(0))
    knowledge = Knowledge(
        record_shape=(8, 8),
        value_range=(0.0, 1.0),
        training=step,
        labels=data.y if labels else None,
    )
    found = read(release, knowledge)
    assert isinstance(found, MatchableRelease)
    return found


def true_features(step: GradientStep, layer: str, data: Records) -> np.ndarray:
    objective = step.objective("float64")
    theta = objective.flat(step.parameters())
    seen: list[torch.Tensor] = []
    hook = objective.module.get_submodule(layer).register_forward_pre_hook(
        lambda _, inputs: seen.append(inputs[0].detach())
    )
    objective.scores(theta, objective.tensor(data.x))
    hook.remove()
    return seen[0].numpy()


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_a_linear_head_has_a_fixed_point_for_different_labels() -> None:
    data = batch((0, 1, 2, 3))
    found = head_features(reading_of(LINEAR, data), data.y, rng())
    assert found is not None
    assert found.route is Route.FIXED_POINT
    np.testing.assert_allclose(found.features, true_features(LINEAR, found.layer, data), atol=1e-8)


def test_a_linear_head_gives_a_span_for_repeated_labels() -> None:
    data = batch((0, 1, 1, 3))
    found = head_features(reading_of(LINEAR, data), data.y, rng())
    assert found is not None
    assert found.route is Route.SPAN
    true = true_features(LINEAR, found.layer, data)
    assert projection_residual(true, found.features) < 1e-4
    # As many records as classes: their features span more than the gradient's rows.
    assert gradient_span(np.eye(10, 30), 10) is None
    assert gradient_span(np.ones((10, 30)), 2) is None


@pytest.mark.parametrize("labels", [(0, 1, 2, 3), (5, 5, 2)], ids=["different", "repeated"])
def test_a_wide_head_gives_each_feature(labels: tuple[int, ...]) -> None:
    data = batch(labels)
    found = head_features(reading_of(WIDE, data), data.y, rng())
    assert found is not None
    assert (found.route, found.layer) == (Route.RECOVERED, "head.hidden")
    true = true_features(WIDE, found.layer, data)
    cosines = (true * found.features).sum(axis=1)
    cosines /= np.linalg.norm(true, axis=1) * np.linalg.norm(found.features, axis=1)
    if len(set(labels)) == len(labels):
        assert cosines.min() > 0.999
    assert matched_cosines(true, found.features).cosines.min() > 0.999


def test_a_wide_head_finds_labels_along() -> None:
    data = batch((7, 4, 1))
    found = head_features(reading_of(WIDE, data, labels=False), None, rng())
    assert found is not None
    assert found.labels is not None
    assert sorted(found.labels) == [1, 4, 7]


def test_which_heads_are_wide() -> None:
    head = wide_head(WIDE.network)
    assert head is not None
    assert (head.hidden, head.output, head.activation) == (
        "head.hidden",
        "head.output",
        Activation.RELU,
    )
    assert wide_head(LINEAR.network) is None
    mlp = wide_head(MLP((8, 8), 10, (20, 30), Activation.TANH))
    assert mlp is not None
    assert (mlp.hidden, mlp.activation) == ("3", Activation.TANH)


def test_liu_uses_what_a_wide_head_gives_away() -> None:
    """The found images have the recovered features; without the term they don't as much."""
    data = batch((0, 1))
    release = WIDE.publish(data, rng=rng())
    knowledge = Knowledge(record_shape=(8, 8), value_range=(0.0, 1.0), training=WIDE, labels=data.y)
    attack = LiuMatching(steps=60, total_variation=1e-3, batch_norm=0.0, feature=1.0)
    true, cosines = true_features(WIDE, "head.hidden", data), []
    for switched in (True, False):
        found = replace(attack, feature_matching=switched).reconstruct(release, knowledge, rng=0)
        assert found.stats.get("features") == ("recovered" if switched else None)
        own = true_features(WIDE, "head.hidden", Records(found.samples, data.y))
        cosines.append(matched_cosines(true, own).cosines.mean())
    assert cosines[0] > cosines[1]
    assert cosines[0] > 0.95


class TestWeights:
    step = GradientStep(ResNet((8, 8), 10, width=4, blocks=(1, 1)), CLASSES)

    def problem(self):  # type: ignore[no-untyped-def]
        data = batch((0, 1))
        reading = reading_of(self.step, data)
        reading = replace(
            reading,
            knowledge=replace(reading.knowledge, batch_norm=batch_statistics(self.step, data)),
        )
        return problem_of(reading, LayerCosine(), labels=data.y, precision="float32")

    def test_given_weights_cost_nothing(self) -> None:
        given = TermWeights(1e-3, 0.2, 0.0)
        found = chosen_weights(self.problem(), Pixels(), SignedAdam(), 100, rng(), given=given)
        assert found == given

    def test_terms_that_are_not_there_weigh_nothing(self) -> None:
        """No features here: their weight is 0; the others are chosen near the usual ones."""
        none = TermWeights(None, None, None)
        found = chosen_weights(self.problem(), Pixels(), SignedAdam(), 200, rng(), given=none)
        assert found.feature == 0.0
        for name in ("total_variation", "batch_norm"):
            ratio = getattr(found, name) / getattr(USUAL, name)
            assert 1 / FURTHEST <= ratio <= FURTHEST

    def test_balanced_terms_pull_by_their_shares(self) -> None:
        """By definition: weight × slope of the term is its share of the distance's slope."""
        problem = self.problem()
        drawn = problem.frame.tensor(rng().random((2, 8, 8)))
        run = Descent(drawn, problem.labels, 0.0, 0.0, 0, 0, False, ())
        found = balanced_weights(problem, run)

        def slope(**weights: float) -> float:
            x = drawn.clone().requires_grad_(True)
            total, distance = replace(problem, **weights).losses(x, problem.labels)
            term = total - distance if weights else distance
            return float(torch.autograd.grad(term, x)[0].norm())

        limits = USUAL.total_variation / FURTHEST, USUAL.total_variation * FURTHEST  # type: ignore[operator]
        expected = SHARES.total_variation * slope() / slope(total_variation=1.0)  # type: ignore[operator]
        assert found.total_variation == pytest.approx(np.clip(expected, *limits), rel=1e-3)
