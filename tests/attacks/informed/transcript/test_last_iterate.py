"""The last parameters alone: exact without noise, no stronger than the steps with it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from exhume.attacks import LastIterate, PriorAware
from exhume.models import MLP
from exhume.models.initialise import Initialisation
from exhume.protocol.attack import Attack
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Status
from exhume.protocol.records import Records
from exhume.training import SGD, Batches, DPClipping, Recorded, Training

TRAINING = Training(
    MLP((6,), 3, (8,)), (0, 1, 2), SGD(0.2), epochs=20, clipping=DPClipping(0.5, 0.0)
)
RNG = np.random.default_rng(0)
KNOWN = Records(RNG.normal(size=(19, 6)), RNG.integers(3, size=19))
CANDIDATES = Records(RNG.normal(size=(6, 6)), RNG.integers(3, size=6))


def _named(attack: Attack, training: Training, target: int, seed: int = 0) -> bool:
    mechanism = Recorded(training)
    data = KNOWN.with_record(CANDIDATES.take([target]))
    release = mechanism.publish(data, rng=np.random.default_rng(seed))
    knowledge = Knowledge(
        record_shape=(6,), training=mechanism, fixed_set=KNOWN, candidates=CANDIDATES
    )
    found = attack.reconstruct(release, knowledge, rng=0)
    assert found.status is Status.CONVERGED, found.message
    return bool((found.samples[0] == CANDIDATES.x[target]).all())


@pytest.mark.parametrize("clipping", [DPClipping(0.5, 0.0), None])
def test_without_noise_every_target_is_named(clipping: DPClipping | None) -> None:
    training = replace(TRAINING, clipping=clipping)
    assert all(_named(LastIterate(), training, target) for target in range(6))


def test_the_end_tells_something_and_no_more_than_the_steps_beyond_chance() -> None:
    training = replace(TRAINING, clipping=DPClipping(0.5, 1.5))
    tried = [(seed % 6, seed) for seed in range(30)]
    steps = sum(_named(PriorAware(), training, target, seed) for target, seed in tried)
    alone = sum(_named(LastIterate(), training, target, seed) for target, seed in tried)
    # A blind guess names 5 of 30. Where nobody gains, the difference of two counts of 30 has a
    # deviation of 3.9 at most: 12 is beyond chance.
    assert 12 < alone < steps + 12


@pytest.mark.parametrize(
    ("training", "reason"),
    [
        (replace(TRAINING, batches=Batches(5, None, poisson=True)), "drawn in secret"),
        (
            replace(TRAINING, initial=Initialisation(seed=None)),
            "initial parameters: add knowledge.initial",
        ),
    ],
)
def test_what_cannot_be_repeated_is_refused(training: Training, reason: str) -> None:
    mechanism = Recorded(training)
    release = mechanism.publish(
        KNOWN.with_record(CANDIDATES.take([0])), rng=np.random.default_rng(0)
    )
    knowledge = Knowledge(
        record_shape=(6,), training=mechanism, fixed_set=KNOWN, candidates=CANDIDATES
    )
    assert reason in str(LastIterate().accepts(release, knowledge))
