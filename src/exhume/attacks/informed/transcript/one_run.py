"""An audit of a training's claimed ε: one training with many canaries (Steinke et al. 2023)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from exhume.attacks.informed.transcript.evidence import sampled
from exhume.attacks.informed.transcript.watched import Rest, WatchedTraining, rest_of
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.records import Records
from exhume.protocol.seeds import Seed, generator
from exhume.stats.empirical_epsilon import (
    best_guesses,
    chosen_confidence,
    epsilon_from_one_run,
    epsilon_of_gaussian,
    gaussian_shift_from_one_run,
)
from exhume.training.recorded import Recorded

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class EmpiricalEpsilon:
    """What one training proves: ε is at least ``lower``, with ``confidence``, at ``delta``.

    ``gaussian`` is the larger limit that holds if the mechanism is Gaussian.
    """

    lower: float
    gaussian: float
    delta: float
    right: int
    guesses: int
    canaries: int
    confidence: float


@dataclass(frozen=True, eq=False)
class CanaryRun:
    """One training with canaries: each one's ``scores``, and whether it was ``included``."""

    scores: FloatArray
    included: Array

    def epsilon(self, delta: float, *, confidence: float = 0.95) -> EmpiricalEpsilon:
        """Return the lower limit of ε at the best number of guesses, corrected for that choice."""
        count = len(self.scores)
        right, guesses = best_guesses(self.scores, self.included, delta, confidence=confidence)
        level = chosen_confidence(count, confidence=confidence)
        shift = gaussian_shift_from_one_run(right, guesses, count, confidence=level)
        return EmpiricalEpsilon(
            epsilon_from_one_run(right, guesses, count, delta=delta, confidence=level),
            epsilon_of_gaussian(shift, delta),
            delta,
            right,
            guesses,
            count,
            confidence,
        )


def canary_run(
    mechanism: Recorded, fixed_set: Records, canaries: Records, *, rng: Seed
) -> CanaryRun:
    """Train once with a random half of ``canaries``, and score all of them by the transcript.

    A canary that is left out has weight 0: the number of records is public and stays the same. The
    auditor knows the fixed set and which of its records take part in each step. It does not know
    this of the canaries.
    """
    if len(canaries) < 2:
        raise InputError(f"a run needs at least two canaries, got {len(canaries)}")
    coins, private, elsewhere = generator(rng).spawn(3)
    included = coins.random(len(canaries)) < 0.5
    tossed = replace(canaries, weight=included.astype(np.float64))
    ones = replace(fixed_set, weight=np.ones(len(fixed_set)))
    data = ones.with_record(tossed)
    release = mechanism.publish(data, rng=private)
    known = None if release.members is None else release.members[:, : len(fixed_set)]
    problem = WatchedTraining(
        replace(release, members=known),
        mechanism,
        mechanism.rules(len(data)).take(release.steps),
        fixed_set,
        Knowledge(record_shape=fixed_set.record_shape, training=mechanism, fixed_set=fixed_set),
    )
    rest = rest_of(problem)
    parts = [np.broadcast_to(rest.rules.rates[:, None], (len(release), len(canaries)))]
    if mechanism.inner.batches is not None:
        parts.append(_predicted(mechanism, len(data), len(canaries), elsewhere)[release.steps])
    scores = [canary_scores(rest, canaries, part) for part in parts]
    # Each canary is included with probability one half. The schedule that explains more is used.
    evidence = [float(np.logaddexp(0.0, one).sum()) for one in scores]
    return CanaryRun(scores[int(np.argmax(evidence))], included)


def _predicted(
    mechanism: Recorded, records: int, canaries: int, rng: np.random.Generator
) -> FloatArray:
    """Return the canaries' parts (steps, canaries) in a run of the sampler with other draws.

    This does not predict a sampler with secret draws. It detects a sampler whose draws are not
    secret.
    """
    steps = list(mechanism.inner.steps(records, rng))
    parts = np.zeros((len(steps), records))
    for row, chosen in zip(parts, steps, strict=True):
        row[slice(None) if chosen is None else chosen] = 1.0
    return parts[:, records - canaries :]


def canary_scores(rest: Rest, canaries: Records, parts: FloatArray) -> FloatArray:
    """Return each canary's log-ratio of included to left out, (canaries,).

    ``parts`` (steps, canaries) are the probabilities of taking part in a step. Gradients of
    canaries may be similar. So the inclusion of all canaries is first estimated together, by least
    squares with the prior of the random half. Then each canary is scored after the others'
    estimated parts are subtracted.
    """
    guess = _together(rest, canaries, parts)
    score = np.zeros(len(canaries))
    for step, (products, gram) in enumerate(_steps(rest, canaries)):
        own, q, noise = np.diag(gram), parts[step], rest.deviations[step] ** 2
        expected = q * guess
        others = gram @ expected - own * expected
        spread = (gram**2) @ (expected * (1.0 - expected)) - own**2 * expected * (1.0 - expected)
        variance = np.maximum(noise * own + spread, 1e-30)
        score += sampled(own * (products - others - 0.5 * own) / variance, q)
    return score


def _together(rest: Rest, canaries: Records, parts: FloatArray) -> FloatArray:
    """Return the estimated probability that each canary is included, (canaries,)."""
    count = len(canaries)
    # A fair coin has mean 1/2 and variance 1/4.
    precision, linear = 4.0 * np.eye(count), np.full(count, 2.0)
    for step, (products, gram) in enumerate(_steps(rest, canaries)):
        q, noise = parts[step], rest.deviations[step] ** 2
        noise = max(noise, 1e-9 * float(np.trace(gram)))
        seen = np.column_stack([gram * q, products]) / noise
        secret = 0.5 * q * (1.0 - q) / noise
        if secret.any():
            seen = np.linalg.solve(np.eye(count) + gram * secret, seen)
        precision += q[:, None] * seen[:, :-1]
        linear += q * seen[:, -1]
    found = np.linalg.solve(0.5 * (precision + precision.T), linear)
    return np.asarray(np.clip(found, 0.0, 1.0))


def _steps(rest: Rest, canaries: Records) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Yield each step's ⟨gᵢ, o⟩ (canaries,) and ⟨gᵢ, gⱼ⟩ (canaries, canaries), clipped."""
    from exhume.derivatives.record_gradients import record_gradients

    objective = rest.objective
    x = objective.tensor(canaries.x)
    y = objective.responses(rest.training.responses(canaries.labels))
    sizes = objective.tensor(np.array(objective.sizes)).long()
    for step, (theta, value) in enumerate(zip(rest.thetas, rest.values, strict=True)):
        each = record_gradients(objective, theta, x, y)
        share = each.shares(objective.tensor(rest.rules.norms[step])).expand(-1, len(sizes))
        rows = objective.gradients_each(theta, x, y) * share.repeat_interleave(sizes, dim=1)
        yield _numbers(rows @ value), _numbers(rows @ rows.T)


def _numbers(values: Tensor) -> FloatArray:
    return np.asarray(values.double().cpu().numpy())
