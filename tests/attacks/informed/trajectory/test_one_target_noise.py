"""Noisy releases: the most probable record, against the prior alone and the Cramér–Rao floor."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from exhume.attacks.informed.trajectory.observation import WholeVector
from exhume.attacks.informed.trajectory.one_target.gaussian_prior import pool_prior
from exhume.attacks.informed.trajectory.one_target.invert import invert_one
from exhume.attacks.informed.trajectory.one_target.noise import noise_deviation
from exhume.attacks.informed.trajectory.one_target.unroll import label_vectors, unroll
from exhume.bounds.floors import cramer_rao_from_jacobian
from exhume.data import load, split_records
from exhume.defences import Rounding
from exhume.models import MLP
from exhume.protocol.defence import Blurring
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.reconstruction import Status
from exhume.protocol.records import Records
from exhume.protocol.release import Release, Weights
from exhume.training import SGD, DPClipping, Training

DIGITS = split_records(load("digits").train, fixed_set=30, shadow_targets=100, targets=3, seed=3)
TRAINING = Training(MLP((8, 8), 10), tuple(range(10)), SGD(0.2, 0.9), epochs=10)


@dataclass(frozen=True)
class Noise(Blurring):
    inner: Mechanism
    size: float

    def publish(self, data: Records, *, rng: np.random.Generator) -> Release:
        inner = self.inner.publish(data, rng=rng)
        noisy = {n: a + rng.normal(0, self.size, a.shape) for n, a in inner.parameters.items()}
        return Weights(noisy)

    def deviation(self, records: int) -> float:
        return self.size

    def describe(self) -> str:
        return "noise"


def knowledge(mechanism: Mechanism) -> Knowledge:
    return Knowledge(
        record_shape=(8, 8),
        value_range=(0.0, 1.0),
        training=mechanism,
        fixed_set=DIGITS.fixed_set,
        shadow_targets=DIGITS.shadow_targets,
        labels=DIGITS.targets.labels[:1],
    )


def published(mechanism: Mechanism) -> Release:
    data = DIGITS.fixed_set.with_record(DIGITS.targets.take([0]))
    return mechanism.publish(data, rng=np.random.default_rng(0))


def error(samples: np.ndarray) -> float:
    return float(np.mean((samples[0] - DIGITS.targets.x[0]) ** 2))


def test_noise_costs_no_more_than_the_floor_says() -> None:
    """At 10 % of the trace's size a coordinate the fit is as good as an unbiased one can be."""
    unrolled = unroll(
        TRAINING, DIGITS.fixed_set, WholeVector(), objective=TRAINING.objective("float64")
    )
    label = label_vectors(TRAINING, DIGITS.targets.labels[:1])[0]
    record = torch.tensor(np.concatenate([DIGITS.targets.x[0].ravel(), label]))
    path = unrolled.path(record)
    size = 0.1 * float((path.theta - unrolled.base).square().mean().sqrt())
    jacobian = torch.stack([path.jvp(e) for e in torch.eye(74, dtype=torch.float64)[:64]]).T
    floor = cramer_rao_from_jacobian(jacobian.numpy(), size).value
    mechanism = Noise(TRAINING, size)
    found = invert_one(published(mechanism), knowledge(mechanism), np.random.default_rng(1))
    assert found.status is Status.CONVERGED
    assert error(found.samples) < 2.0 * floor
    assert 0.3 < found.error_estimate[0] ** 2 / error(found.samples) < 3.0
    assert found.stats["misfit"] == pytest.approx(1.0, abs=0.2)


def test_hopeless_noise_leaves_the_prior() -> None:
    mechanism = Noise(TRAINING, 10.0)
    found = invert_one(published(mechanism), knowledge(mechanism), np.random.default_rng(1))
    assert found.status is Status.APPROXIMATE
    pool = np.concatenate([DIGITS.fixed_set.x, DIGITS.shadow_targets.x])
    blind = float(np.mean((pool.mean(axis=0) - DIGITS.targets.x[0]) ** 2))
    assert error(np.clip(found.samples, 0, 1)) < 1.3 * blind


def test_slight_rounding_is_no_defence() -> None:
    mechanism = Rounding(TRAINING, 6)
    found = invert_one(published(mechanism), knowledge(mechanism), np.random.default_rng(1))
    assert found.status is Status.CONVERGED
    assert error(found.samples) < 1e-5


def test_any_prior_may_be_given() -> None:
    """A guess that is right but for a little is kept, where noise hides everything else."""
    mechanism = Noise(TRAINING, 10.0)
    guess = DIGITS.targets.x[0].ravel() + 0.01
    spread = 0.01 * np.random.default_rng(0).normal(size=(200, 64))
    prior = pool_prior(guess + spread - spread.mean(axis=0))
    known = knowledge(mechanism)
    found = invert_one(published(mechanism), known, np.random.default_rng(1), prior=prior)
    assert error(found.samples) < 5e-4


def test_the_noise_of_private_training_is_measured_a_layer_at_a_time() -> None:
    training = replace(TRAINING, clipping=DPClipping(1.0, 0.5), epochs=3)
    unrolled = unroll(
        training, DIGITS.fixed_set, WholeVector(), objective=training.objective("float64")
    )
    found = noise_deviation(training, training, DIGITS.fixed_set, unrolled)
    runs = [
        training.run(
            training.objective("float64"), DIGITS.fixed_set, rng=np.random.default_rng(i)
        ).numpy()
        for i in range(20, 30)
    ]
    measured = np.std(runs, axis=0, ddof=1)
    assert float(found[:640].mean()) == pytest.approx(float(measured[:640].mean()), rel=0.15)
    assert noise_deviation(TRAINING, TRAINING, DIGITS.fixed_set, unrolled) is None
