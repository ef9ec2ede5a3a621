"""Which mini-batches a client's local steps saw, where their order is not known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from exhume.attacks.matching.core import Budget, Problem, Run, match
from exhume.attacks.matching.objectives import SquaredL2
from exhume.attacks.matching.optimisers import LBFGS
from exhume.attacks.matching.priors import Pixels
from exhume.attacks.matching.reading import Reading, problem_of
from exhume.training.gradient import LocalSteps

GUESSES = 48
"""Orders that are drawn and compared at the first answer."""
TRIED = 4
"""Of those, how many are tried in earnest: two rounds of L-BFGS each."""


def unknown_order(reading: Reading) -> bool:
    """Tell whether the release is of local steps whose mini-batches are not known."""
    local = reading.mechanism
    return isinstance(local, LocalSteps) and not local.order_known


def likely_order(reading: Reading, run: Run, rng: np.random.Generator) -> Reading | None:
    """Return the reading with the order that explains the release best; None where none does.

    ``run`` is an answer to the release as if every step had seen all records. From there drawn
    orders are compared by what they leave of the release, the best few after a short fit each. An
    order is taken only if it leaves less than half of what ``run`` does. There are too many orders
    of many records or epochs to meet the right one by chance; near ones help less.
    """
    local = reading.mechanism
    assert isinstance(local, LocalSteps)
    assert local.batches is not None
    drawn: dict[tuple[tuple[int, ...], ...], Reading] = {}
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


def _posed(reading: Reading, labels: Tensor) -> Problem:
    problem = problem_of(reading, SquaredL2(), labels=None, precision="float64")
    return replace(problem, labels=labels)


def _residual(problem: Problem, images: Tensor, labels: Tensor) -> float:
    return problem.residual(images.to(problem.frame.dtype), labels)


def _fitted(problem: Problem, run: Run, rng: np.random.Generator) -> float:
    """Return the residual after a short fit from the answer."""
    start = Pixels(noise=0.0, clamped=False, given=run.images.cpu().numpy())
    found = match(problem, start, LBFGS(), Budget(steps=2), rng).best
    distance = torch.tensor(found.distance, dtype=torch.float64)
    return float(distance.clamp_min(0.0).sqrt())
