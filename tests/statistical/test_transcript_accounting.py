"""The worst case sits on the bound: a canary whose gradient is always clipped, beside no other.

A test of the training and of its accounting at once: too little noise, and the canary is found more
often than the bound allows; too much, and less often.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from scipy.stats import binomtest, norm

from exhume.attacks.informed.transcript.evidence import matched, ratios_by_step
from exhume.attacks.informed.transcript.watched import Rest, WatchedTraining, rest_of, watched
from exhume.bounds import ceiling
from exhume.models import MLP
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.records import Records
from exhume.training import SGD, Batches, DPClipping, Recorded, Training

STEPS, BLOCK, KAPPA = 4000, 20, 0.1
NOISE = {"full": 4.0, "poisson": 0.8}
KNOWN = Records(np.eye(3, 4)[[0, 1, 2, 0, 1, 2, 0, 1, 2]], np.arange(9) % 2)
# Of the class that its start finds unlikely: the gradient stays far above the clipping norm.
CANARY = Records(np.array([[0.0, 0.0, 0.0, 1000.0]]), np.array([0]))


def _mechanism(kind: str, noise: float, steps: int = STEPS) -> Recorded:
    """A logistic regression that hardly moves: every block of its steps is a training alike."""
    sampled = kind == "poisson"
    batches = Batches(2, None, poisson=True) if sampled else None
    training = Training(
        MLP((4,), 2, ()),
        (0, 1),
        SGD(1e-7),
        steps // 5 if sampled else steps,
        batches,
        clipping=DPClipping(0.5, noise),
    )
    return Recorded(training)


@lru_cache
def _rest(kind: str, noise: float, there: bool) -> Rest:
    """Train with the canary, or with a record of weight 0 in its place; read it as stated."""
    mechanism = _mechanism(kind, noise)
    weight = np.append(np.ones(9), 1.0 if there else 0.0)
    data = KNOWN.with_record(CANARY)
    release = mechanism.publish(
        Records(data.x, data.y, weight), rng=np.random.default_rng([1, there])
    )
    stated = _mechanism(kind, NOISE[kind])
    problem = watched(release, Knowledge(record_shape=(4,), training=stated, fixed_set=KNOWN))
    assert isinstance(problem, WatchedTraining)
    return rest_of(problem)


def _blocks(kind: str, noise: float, there: bool) -> np.ndarray:
    ratios = ratios_by_step(_rest(kind, noise, there), CANARY)[:, 0]
    return np.asarray(ratios.reshape(-1, BLOCK).sum(axis=1))


@pytest.mark.parametrize("kind", ["full", "poisson"])
def test_the_canary_is_found_as_often_as_the_bound_allows(kind: str) -> None:
    event = _mechanism(kind, NOISE[kind], BLOCK).event(10)
    bound = ceiling(event, KAPPA)
    assert bound is not None
    # The threshold of a test of level κ, from many draws without the canary.
    rng, noise = np.random.default_rng(0), NOISE[kind]
    draws = rng.standard_normal((200_000, BLOCK)) / noise - 0.5 / noise**2
    rate = 0.2 if kind == "poisson" else 1.0
    null = np.log((1.0 - rate) + rate * np.exp(draws)).sum(axis=1)
    threshold = np.quantile(null, 1.0 - KAPPA)
    found = int((_blocks(kind, noise, True) > threshold).sum())
    false = int((_blocks(kind, noise, False) > threshold).sum())
    count = STEPS // BLOCK
    assert binomtest(found, count, bound.gamma).pvalue > 0.005
    assert binomtest(false, count, KAPPA).pvalue > 0.005
    # It is a test that would notice a bound 60 % too high, or as much too low.
    assert binomtest(found, count, bound.gamma * 1.6).pvalue < 0.005
    assert binomtest(found, count, bound.gamma / 1.6).pvalue < 0.005


def test_the_canary_is_always_clipped_and_orthogonal() -> None:
    rest = _rest("full", NOISE["full"], True)
    _, squares = matched(rest, CANARY, 1.0)
    np.testing.assert_allclose(squares, 0.25, rtol=1e-4)


@pytest.mark.parametrize(("factor", "right"), [(1.0, True), (0.9, False), (1.1, False)])
def test_the_right_noise_is_accepted_and_a_slightly_wrong_one_rejected(
    factor: float, right: bool
) -> None:
    rest = _rest("full", NOISE["full"] * factor, True)
    products, _ = matched(rest, CANARY, 1.0)
    # ⟨g, o⟩ / (σC²) has mean 1/σ and deviation 1, step by step, where σ is as stated.
    scores = products[:, 0] / (0.25 * NOISE["full"])
    mean = (scores.mean() - 1.0 / NOISE["full"]) * np.sqrt(STEPS)
    spread = (scores.var() - 1.0) * np.sqrt(STEPS / 2.0)
    assert bool(max(abs(mean), abs(spread)) < norm.ppf(0.9975)) is right
    assert rest.contradicted is not right
