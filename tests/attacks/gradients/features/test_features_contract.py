"""The attack on features against the contract that every attack keeps to."""

from __future__ import annotations

import numpy as np
import pytest
from tests.contract.attack import AttackContract
from tests.contract.cases import Case

from exhume.attacks import Attack
from exhume.attacks.gradients.features import Features, FeatureSearchSettings
from exhume.models import MLP, Activation, Initialisation
from exhume.models.two_layer import TwoLayer
from exhume.protocol.records import Records
from exhume.training.gradient import GradientStep

CLASSES = ("ape", "bee", "cat")


def case(name: str, step: GradientStep, known: int, *, labels_known: bool = False) -> Case:
    rng = np.random.default_rng(3)
    shape = step.network.record_shape
    x = rng.standard_normal((known + 2, *shape))
    if step.classes is None:
        y = rng.choice([-1.0, 1.0], known + 2)
    else:
        y = np.asarray(step.classes)[rng.integers(0, len(step.classes), known + 2)]
    data = Records(x, y)
    return Case(
        name,
        step,
        data.take(slice(0, known)),
        data.take(slice(known, None)),
        labels_known=labels_known,
    )


def two_layer(activation: Activation, **biases: bool) -> TwoLayer:
    return TwoLayer((2, 3), 3, 80, activation, **biases)


CASES = (
    case("relu", GradientStep(two_layer(Activation.RELU), CLASSES), 0),
    case("elu, one record known", GradientStep(two_layer(Activation.ELU), CLASSES), 1),
    case(
        "gelu with biases, label known",
        GradientStep(two_layer(Activation.GELU, hidden_bias=True, output_bias=True), CLASSES),
        2,
        labels_known=True,
    ),
    case(
        "a perceptron",
        GradientStep(MLP((6,), 3, (80,), Activation.SOFTPLUS), CLASSES, Initialisation(seed=4)),
        0,
    ),
    case(
        "a regression",
        GradientStep(TwoLayer((6,), 1, 100, Activation.SHIFTED_RELU), None),
        0,
        labels_known=True,
    ),
)


class TestFeatures(AttackContract):
    @pytest.fixture
    def attack(self) -> Attack:
        return Features(
            FeatureSearchSettings(restarts=2, iterations=150, anchor_iterations=40, shakes=2)
        )

    @pytest.fixture(params=CASES, ids=str)
    def case(self, request: pytest.FixtureRequest) -> Case:
        return request.param
