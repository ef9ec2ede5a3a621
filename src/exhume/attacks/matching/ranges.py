"""Whether a failed search failed because the inputs were normalised."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from torch import Tensor

from exhume.attacks.matching.continuation import Continuation
from exhume.attacks.matching.core import Budget, Problem, Run, match
from exhume.attacks.matching.objectives import Cosine
from exhume.attacks.matching.optimisers import SignedAdam
from exhume.attacks.matching.priors import Pixels
from exhume.attacks.matching.reading import Reading, problem_of

WIDE = (-3.0, 3.0)
"""Where normalised inputs, (x − mean) / deviation, lie."""
STEPS = 150
"""Fewer do not tell the ranges apart."""
BETTER = 0.7


def normalised_inputs(
    reading: Reading, run: Run, labels: Tensor, rng: np.random.Generator
) -> str | None:
    """Say that inputs of another range fit the release better than the known one, or None.

    Two short searches over pixels from one stream, one within the known range and one within that
    of normalised inputs: where the first is right, the second is much the worse. Only asked of
    runs so long that this is a small part, and of releases whose scale does not fit either.
    """
    known = reading.knowledge.value_range
    image = len(reading.knowledge.record_shape) > 1
    if known is None or not image or run.evaluations < 2 * STEPS or labels.is_floating_point():
        return None
    if known[0] <= WIDE[0] and known[1] >= WIDE[1]:
        return None
    problem = problem_of(reading, Cosine(), labels=None, precision="float32")
    seed = int(rng.integers(2**31))
    own, wide = (_searched(problem, labels, box, seed) for box in (known, WIDE))
    if not wide.distance < BETTER * own.distance:
        return None
    low, high = np.quantile(wide.images.cpu().numpy(), [0.01, 0.99])
    return (
        f"inputs between {low:.2g} and {high:.2g} fit the release better than within "
        f"[{known[0]:g}, {known[1]:g}] (distance {wide.distance:.2g} against {own.distance:.2g}): "
        "they were probably normalised, (x − mean) / deviation"
    )


def _searched(problem: Problem, labels: Tensor, box: tuple[float, float], seed: int) -> Run:
    frame = replace(problem.frame, box=box)
    posed = replace(problem, frame=frame, labels=labels, total_variation=1e-2, attributes=None)
    budget, rng = Budget(steps=STEPS), np.random.default_rng(seed)
    return match(posed, Pixels(), SignedAdam(), budget, rng, continuation=Continuation()).best
