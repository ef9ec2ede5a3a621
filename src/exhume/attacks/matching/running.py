"""What the attacks with a schedule share: one run of the loop by their settings."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from exhume.attacks.matching.base import Found
from exhume.errors import InputError

if TYPE_CHECKING:
    from exhume.attacks.matching.continuation import Continuation
    from exhume.attacks.matching.core import Problem
    from exhume.attacks.matching.optimisers import Optimiser
    from exhume.attacks.matching.priors import Prior
    from exhume.attacks.matching.reading import Reading


class Scheduled(Protocol):
    """The settings of a run: ``steps`` from each of ``restarts`` starts, smoothed first or not."""

    @property
    def steps(self) -> int:
        """Steps of the optimiser a run."""

    @property
    def restarts(self) -> int:
        """Runs."""

    @property
    def continuation(self) -> bool:
        """Whether to begin with a smoothed network."""


def matched(
    attack: Scheduled,
    problem: Problem,
    prior: Prior,
    optimiser: Optimiser,
    variation: float | None,
    rng: np.random.Generator,
) -> Found:
    """Run the loop, choosing the weight of total variation first where none is given."""
    from exhume.attacks.matching.choice import chosen_variation
    from exhume.attacks.matching.core import Budget, match

    continuation = continuation_of(attack)
    if variation is None:
        steps = max(30, attack.steps // 4)
        variation = chosen_variation(problem, prior, optimiser, steps, rng, continuation)
    flat = len(problem.frame.record_shape) < 2
    least = 0.0 if flat else noise_variation(problem)
    posed = replace(
        problem,
        total_variation=0.0 if flat else max(variation, least),
        least_variation=least,
    )
    budget = Budget(steps=attack.steps, restarts=attack.restarts, enough=1e-12)
    found = match(posed, prior, optimiser, budget, rng, continuation=continuation)
    return Found(posed, found)


SMOOTHNESS = 1.5
"""Of the weight that noise gives total variation: on CIFAR-10 half and twice of it do worse."""


def noise_variation(problem: Problem) -> float:
    """Return the least weight of total variation beside the cosine of a release with known noise.

    As with Bayes' rule it grows with the noise's share of the release's square and with the number
    of pixels for a released number; the cosine itself can't exceed the root of the signal's share,
    and by the root of that the weight grows once more. Without it noise is fitted.
    """
    released, frame = problem.released, problem.frame
    noise, entries = released.noise, sum(v.numel() for v in released.values)
    if not noise:
        return 0.0
    pixels = frame.count * math.prod(frame.record_shape)
    # The share of the signal is known to the noise's own scatter only.
    signal = max(1.0 - noise, math.sqrt(2.0 / entries))
    return SMOOTHNESS * noise * (pixels / entries) / math.sqrt(math.sqrt(signal))


def continuation_of(attack: Scheduled) -> Continuation | None:
    """Return the default continuation where the attack wants one."""
    from exhume.attacks.matching.continuation import Continuation

    return Continuation() if attack.continuation else None


def no_image(reading: Reading) -> str | None:
    """Say why records can't be drawn by an image prior, or return None."""
    shape = reading.knowledge.record_shape
    if len(shape) not in (2, 3):
        return f"the image prior draws images, and records have shape {shape}"
    if min(shape[:2]) < 4:
        return f"the image prior draws images of at least 4 × 4, not {shape}"
    return None


def at_least_one(attack: object, *names: str) -> None:
    """Refuse settings ``names`` below 1."""
    for name in names:
        if getattr(attack, name) < 1:
            raise InputError(f"{name} must be at least 1, got {getattr(attack, name)}")
