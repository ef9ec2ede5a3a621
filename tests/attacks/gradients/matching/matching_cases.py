"""Real images and small networks that the matching attacks are held against."""

from __future__ import annotations

import numpy as np
from tests.contract.cases import Case
from torch import nn

from exhume.attacks import Attack
from exhume.data import load
from exhume.models import MLP, Activation
from exhume.models.cnn import channels_first
from exhume.models.convnet import ConvNet
from exhume.models.imported import Imported
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.reconstruction import Reconstruction
from exhume.protocol.records import Records
from exhume.training.gradient import GradientStep

CLASSES = tuple(range(10))


def pictures(side: int, count: int, first: int = 0) -> Records:
    """Real images of different classes, cut to ``side`` × ``side``."""
    records = load("fashion-mnist-small").train
    seen: dict[int, int] = {}
    for index in range(first, len(records)):
        seen.setdefault(int(records.labels[index]), index)
    chosen = [seen[label] for label in sorted(seen)][:count]
    step = 28 // side
    cut = slice((28 - side * step) // 2, (28 - side * step) // 2 + side * step, step)
    return Records(records.x[chosen][:, cut, cut].astype(np.float64), records.y[chosen])


def errors(truth: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """Mean squared error of each true record, paired up as fits best."""
    from scipy.optimize import linear_sum_assignment

    costs = np.square(truth[:, None] - samples[None]).mean(axis=(2, 3))
    rows, columns = linear_sum_assignment(costs)
    return np.asarray(costs[rows, columns])


def mean_grey(truth: np.ndarray) -> np.ndarray:
    """What knowing each image's mean, and nothing else, would reach."""
    return np.asarray(truth.var(axis=(1, 2)))


def attacked(
    attack: Attack, mechanism: Mechanism, data: Records, **known: object
) -> Reconstruction:
    release = mechanism.publish(data, rng=np.random.default_rng(0))
    knowledge = Knowledge(
        record_shape=data.record_shape,
        value_range=(0.0, 1.0),
        **{"training": mechanism, "labels": data.y, **known},  # type: ignore[arg-type]
    )
    return attack.reconstruct(release, knowledge, rng=0)


SMOOTH = GradientStep(MLP((4, 4), 10, (6,), Activation.SIGMOID), CLASSES, precision="float64")
KINKED = GradientStep(ConvNet((8, 8), 10, width=16), CLASSES)


def hidden_relu() -> nn.Module:
    """Two convolutions with pooling, and a hidden fully connected layer behind them."""
    return _hidden(nn.ReLU())


def hidden_sigmoid() -> nn.Module:
    """The same with a smooth activation between the fully connected layers."""
    return _hidden(nn.Sigmoid())


def _hidden(activation: nn.Module) -> nn.Module:
    return nn.Sequential(
        channels_first((12, 12)),
        *(nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.AvgPool2d(2)),
        *(nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.AvgPool2d(2)),
        *(nn.Flatten(), nn.Linear(288, 64), activation, nn.Linear(64, 10)),
    )


def hidden_layer(name: str) -> GradientStep:
    """A gradient step of one of the networks above, on images of 12 × 12."""
    source = f"tests.attacks.gradients.matching.matching_cases:{name}"
    return GradientStep(Imported((12, 12), 10, source), CLASSES)


def contract_case(name: str, mechanism: Mechanism, side: int, known: int) -> Case:
    data = pictures(side, known + 2)
    return Case(
        name,
        mechanism,
        data.take(slice(0, known)),
        data.take(slice(known, None)),
        value_range=(0.0, 1.0),
        labels_known=True,
    )
