"""The mini-batches of a client's local steps, if their order is not known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from exhume.attacks.gradients.matching.loop import Descent, MatchingProblem, StepBudget, match
from exhume.attacks.gradients.matching.objectives import SquaredL2
from exhume.attacks.gradients.matching.optimisers import LBFGS
from exhume.attacks.gradients.matching.priors import Pixels
from exhume.attacks.gradients.matching.problem import MatchableRelease, problem_of
from exhume.training.local_steps import LocalSteps

GUESSES = 48
"""Number of orders that are drawn and compared at the first answer."""
TRIED = 4
"""Number of the best orders that get a short fit: two rounds of L-BFGS each."""


def unknown_order(reading: MatchableRelease) -> bool:
    """Whether the release comes from local steps with unknown mini-batches."""
    local = reading.mechanism
    return isinstance(local, LocalSteps) and not local.order_known


def likely_order(
    reading: MatchableRelease, run: Descent, rng: np.random.Generator
) -> MatchableRelease | None:
    """Return the reading with the order that explains the release best, or None.

    ``run`` is an answer that assumes every step saw all records. From there, random orders are
    compared by their residual, the best few after a short fit each. An order is accepted only if
    its residual is less than half of that of ``run``. With many records or epochs there are too
    many orders to draw the right one by chance; similar ones help less.
    """
    local = reading.mechanism
    assert isinstance(local, LocalSteps)
    assert local.batches is not None
    drawn: dict[tuple[tuple[int, ...], ...], MatchableRelease] = {}
    for _ in range(GUESSES):
        batches = replace(local.batches, seed=int(rng.integers(2**31)))
        guess = replace(local, batches=batches)
        steps = guess.steps(reading.total, np.random.default_rng(0))
        key = tuple(tuple(sorted(chosen.tolist())) for chosen in steps)
        drawn.setdefault(key, reading.assuming(guess))
    labels = run.labels.argmax(dim=1) if run.labels.ndim == 2 else run.labels
    posed = [(one, _posed(one, labels)) for one in drawn.values()]
    posed.sort(key=lambda pair: _residual(pair[1], run.images, labels))
    fitted = [(_fitted(problem, run, rng), one) for one, problem in posed[:TRIED]]
    left, best = min(fitted, key=lambda pair: pair[0])
    own = _residual(_posed(reading, labels), run.images, labels)
    return best if left < 0.5 * own else None


def _posed(reading: MatchableRelease, labels: Tensor) -> MatchingProblem:
    problem = problem_of(reading, SquaredL2(), labels=None, precision="float64")
    return replace(problem, labels=labels)


def _residual(problem: MatchingProblem, images: Tensor, labels: Tensor) -> float:
    return problem.residual(images.to(problem.frame.dtype), labels)


def _fitted(problem: MatchingProblem, run: Descent, rng: np.random.Generator) -> float:
    """Return the residual after a short fit from the answer."""
    start = Pixels(noise=0.0, clamped=False, given=run.images.cpu().numpy())
    found = match(problem, start, LBFGS(), StepBudget(steps=2), rng).best
    distance = torch.tensor(found.distance, dtype=torch.float64)
    return float(distance.clamp_min(0.0).sqrt())
