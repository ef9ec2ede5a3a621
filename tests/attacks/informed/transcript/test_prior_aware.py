"""The prior-aware attack: exact evidence, honest refusals, and trainings that are not as stated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from exhume.attacks.informed.transcript import PriorAware
from exhume.attacks.informed.transcript.evidence import log_ratios
from exhume.attacks.informed.transcript.watched import WatchedTraining, rest_of, watched
from exhume.defences import DPSGD, ActivationDropout
from exhume.models import MLP
from exhume.models.initialise import Initialisation
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.records import Records
from exhume.protocol.release import Release, Transcript
from exhume.training import SGD, Batches, DPClipping, Recorded, Training
from exhume.training.gradient import GradientStep
from exhume.training.local_steps import LocalSteps

FULL = Training(
    MLP((6,), 3, (8,)), (0, 1, 2), SGD(0.2, 0.5), epochs=30, clipping=DPClipping(0.5, 4.0)
)
SAMPLED = replace(
    FULL, epochs=10, batches=Batches(10, None, poisson=True), clipping=DPClipping(0.5, 0.5)
)
LOCAL = LocalSteps(
    DPSGD(GradientStep(MLP((6,), 3, (8,)), (0, 1, 2), Initialisation(seed=1)), 0.5, 4.0),
    SGD(0.1),
    epochs=30,
)


def _records(count: int, seed: int = 0) -> Records:
    rng = np.random.default_rng(seed)
    return Records(rng.normal(size=(count, 6)), rng.integers(3, size=count))


FIXED, POOL = _records(29), _records(60, 1)


def _knowledge(mechanism: Mechanism, candidates: Records | None = None) -> Knowledge:
    return Knowledge(
        record_shape=(6,),
        training=mechanism,
        fixed_set=FIXED,
        candidates=POOL.take(slice(0, 8)) if candidates is None else candidates,
    )


def _published(mechanism: Recorded, target: int, seed: int = 3) -> Transcript:
    data = FIXED.with_record(POOL.take([target]))
    return mechanism.publish(data, rng=np.random.default_rng(seed))


def _attacked(release: Release, knowledge: Knowledge) -> Reconstruction:
    return PriorAware().reconstruct(release, knowledge, rng=0)


def _without_noise(training: Training) -> Training:
    return replace(training, clipping=DPClipping(0.5, 0.0))


@pytest.mark.parametrize(
    "inner",
    [
        replace(FULL, clipping=None),
        _without_noise(FULL),
        _without_noise(SAMPLED),
        replace(LOCAL, client=GradientStep(MLP((6,), 3, (8,)), (0, 1, 2), Initialisation(seed=1))),
    ],
    ids=["plain", "clipped", "poisson", "local"],
)
def test_without_noise_the_target_is_found_among_all_candidates(
    inner: Training | LocalSteps,
) -> None:
    mechanism = Recorded(inner)
    for target in range(5):
        found = _attacked(_published(mechanism, target), _knowledge(mechanism))
        assert found.status is Status.CONVERGED
        np.testing.assert_array_equal(found.samples[0], POOL.x[target])
        assert found.labels is not None
        assert found.labels[0] == POOL.labels[target]
        assert found.confidence is not None
        assert found.confidence[0] > 0.999


def _slow_log_ratio(mechanism: Recorded, release: Transcript, candidate: Records) -> float:
    """Return the ratio by its definition: densities of what was sent, record by record."""
    training = mechanism.inner
    assert isinstance(training, Training)
    assert training.clipping is not None
    objective, total = training.objective(), 0.0
    norm, noise = (
        training.clipping.norm,
        training.clipping.norm * training.clipping.noise_multiplier,
    )
    count = 30 if training.batches is None else training.batches.size
    rate = 1.0 if training.batches is None else 10 / 30
    data = FIXED.with_record(candidate)
    for step in range(len(release)):
        theta = objective.flat({n: a[step] for n, a in release.parameters.items()})
        sent = objective.flat({n: a[step] for n, a in release.gradients.items()}).double() * count
        rows = objective.gradients_each(
            theta, objective.tensor(data.x), objective.responses(data.labels)
        ).double()
        rows = rows * (norm / rows.norm(dim=1)).clamp_max(1.0)[:, None]
        members = np.ones(29, bool) if release.members is None else release.members[step]
        without = rows[:-1][members.tolist()].sum(0) if members.any() else 0.0 * rows[0]
        densities = [
            -0.5 * float((sent - mean).square().sum()) / noise**2
            for mean in (without, without + rows[-1])
        ]
        there = np.exp(densities[1] - densities[0])
        total += float(np.log((1.0 - rate) + rate * there))
    return total


@pytest.mark.parametrize("training", [FULL, SAMPLED], ids=["full", "poisson"])
def test_the_evidence_is_the_ratio_of_densities(training: Training) -> None:
    mechanism = Recorded(training)
    release, candidates = _published(mechanism, 0), POOL.take([0, 1, 2])
    problem = watched(release, _knowledge(mechanism))
    assert isinstance(problem, WatchedTraining)
    fast = log_ratios(rest_of(problem), candidates)
    slow = [_slow_log_ratio(mechanism, release, candidates.take([i])) for i in range(3)]
    np.testing.assert_allclose(fast, slow, rtol=1e-4, atol=1e-4)


def test_confidences_are_calibrated() -> None:
    # The posterior of the answer says how often it is right: that is what Bayes' rule promises.
    quick = replace(FULL, epochs=8, clipping=DPClipping(0.5, 2.0))
    mechanism, right, said = Recorded(quick), 0, 0.0
    for seed in range(100):
        target = seed % 8
        found = _attacked(_published(mechanism, target, seed), _knowledge(mechanism))
        assert found.confidence is not None
        right += bool((found.samples[0] == POOL.x[target]).all())
        said += float(found.confidence[0])
    deviation = np.sqrt(said * (1.0 - said / 100))
    assert abs(right - said) < 3.5 * deviation
    assert 0.2 < right / 100 < 0.95


def test_every_third_step_is_a_transcript_too() -> None:
    mechanism = Recorded(_without_noise(FULL), every=3)
    found = _attacked(_published(mechanism, 4), _knowledge(mechanism))
    np.testing.assert_array_equal(found.samples[0], POOL.x[4])


def test_noise_that_is_not_as_stated_is_noticed_and_used() -> None:
    stated = Recorded(FULL)
    for factor, noticed in ((1.0, False), (0.9, True), (1.1, True)):
        real = Recorded(replace(FULL, clipping=DPClipping(0.5, 4.0 * factor)))
        found = _attacked(_published(real, 2), _knowledge(stated))
        assert ("not the described one" in found.message) is noticed
        measured = float(found.stats["noise_over_stated"])
        # 30 steps of 83 numbers: a standard error of 1.4 %.
        assert abs(measured - factor) < 0.06


@pytest.mark.parametrize(
    ("mechanism", "reason"),
    [
        (Recorded(replace(FULL, network=MLP((6,), 3, (9,)))), "another model"),
        (Recorded(replace(FULL, epochs=20)), "20 steps"),
        (Recorded(SAMPLED), "which known records took part"),
        (FULL, "publishes no transcript"),
        (Recorded(replace(FULL, clipping=None, batches=Batches(10, None))), "Poisson sampling"),
        (Recorded(replace(LOCAL, client=ActivationDropout(LOCAL.client.inner, 0.5))), "clipped"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(mechanism: Mechanism, reason: str) -> None:
    release = _published(Recorded(FULL), 0)
    found = _attacked(release, _knowledge(mechanism))
    assert found.status is Status.REFUSED
    assert reason in found.message


def test_one_candidate_is_no_question() -> None:
    mechanism = Recorded(FULL)
    knowledge = _knowledge(mechanism, POOL.take([0]))
    found = _attacked(_published(mechanism, 0), knowledge)
    assert found.status is Status.UNINFORMED
    assert "two or more candidates" in found.message


def test_other_releases_are_refused() -> None:
    mechanism = Recorded(FULL)
    found = _attacked(_published(mechanism, 0).weights(), _knowledge(mechanism))
    assert "needs a transcript" in found.message
