"""Small gradients that the analytic attacks are held against."""

from __future__ import annotations

import numpy as np
from tests.contract.cases import Case

from exhume.data import load
from exhume.defences import Rounding
from exhume.metrics import PSNR, match
from exhume.models import MLP, Activation
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction
from exhume.protocol.records import Records
from exhume.protocol.release import Gradient
from exhume.training import SGD
from exhume.training.gradient import GradientStep
from exhume.training.local_steps import Aggregate, LocalSteps

IMAGES = load("fashion-mnist-small").train
CLASSES = tuple(range(10))
DECIBELS = PSNR(value_range=(0.0, 1.0))


def small_records(count: int, seed: int = 0) -> Records:
    rng = np.random.default_rng(seed)
    return Records(rng.random((count, 4, 4)), rng.integers(0, 3, count))


def small_step(activation: Activation = Activation.RELU) -> GradientStep:
    return GradientStep(MLP((4, 4), 3, (24, 8), activation), (0, 1, 2), precision="float64")


def small_case(name: str, mechanism: object, known: int) -> Case:
    data = small_records(known + 3)
    fixed, targets = data.take(slice(0, known)), data.take(slice(known, None))
    return Case(name, mechanism, fixed, targets, value_range=(0.0, 1.0))  # type: ignore[arg-type]


LONE_CASES = (
    small_case("one record", small_step(), 0),
    small_case("three known", small_step(), 3),
    small_case("one local step", LocalSteps(small_step(), SGD(0.1, weight_decay=1e-3)), 2),
    small_case("two clients", Aggregate(small_step(), 2), 3),
    small_case("rounded", Rounding(small_step(), 9), 1),
)


def image_step(
    width: int = 256,
    activation: Activation = Activation.RELU,
    *,
    state: dict[str, np.ndarray] | None = None,
) -> GradientStep:
    return GradientStep(MLP((28, 28), 10, (width, 32), activation), CLASSES, state=state)


def image_batch(count: int, seed: int = 0) -> Records:
    rng = np.random.default_rng([seed, count])
    return IMAGES.take(rng.choice(len(IMAGES), count, replace=False))


def attacked(step: GradientStep, data: Records) -> tuple[Gradient, Knowledge]:
    """What the adversary gets, and what it knew: network and parameters, no record."""
    release = step.publish(data, rng=np.random.default_rng(0))
    knowledge = Knowledge(record_shape=data.record_shape, value_range=(0.0, 1.0), training=step)
    return release, knowledge


def decibels(data: Records, found: Reconstruction) -> np.ndarray:
    """PSNR of each record by assignment; 0 for a record without a candidate."""
    return np.nan_to_num(match(data.x, found.samples, DECIBELS).scores, nan=0.0)


def mean_colour_decibels(data: Records) -> np.ndarray:
    """What each image's own best constant colour scores: the baseline beside a PSNR."""
    flat = data.x.reshape(len(data), 28 * 28, -1)
    return DECIBELS(flat, np.broadcast_to(flat.mean(axis=1, keepdims=True), flat.shape))
