"""Settings chosen by the release itself: what was held out of the match must be predicted by it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from exhume.attacks.matching.continuation import Continuation
from exhume.attacks.matching.core import Budget, Problem, match, without
from exhume.attacks.matching.objectives import Cosine
from exhume.attacks.matching.optimisers import Optimiser
from exhume.attacks.matching.priors import Prior

CANDIDATES = (3e-3, 1e-2, 3e-2)


def chosen_variation(
    problem: Problem,
    prior: Prior,
    optimiser: Optimiser,
    steps: int,
    rng: np.random.Generator,
    continuation: Continuation | None = None,
    *,
    candidates: tuple[float, ...] = CANDIDATES,
) -> float:
    """Return the weight of total variation whose short run best predicts layers held out of it.

    A quarter of the released parameters, chosen at random, is masked out of each run and compared
    with its result afterwards by their cosine; every candidate starts from the same point. The
    truth plays no part. Costs ``len(candidates)`` runs of ``steps``.
    """
    held = held_out(problem, rng)
    if not held:
        return candidates[len(candidates) // 2]
    seed = int(rng.integers(2**31))
    scores = []
    for weight in candidates:
        fitted = replace(without(problem, held), total_variation=weight)
        stream = np.random.default_rng(seed)
        budget = Budget(steps=steps)
        found = match(fitted, prior, optimiser, budget, stream, continuation=continuation).best
        rest = [i for i in range(len(problem.released.values)) if i not in held]
        checked = without(problem, rest)
        simulated = checked.simulate(found.images, found.labels)
        scores.append(float(Cosine()(simulated, checked.released).detach()))
    return candidates[int(np.nanargmin(scores))] if np.isfinite(scores).any() else candidates[1]


def held_out(problem: Problem, rng: np.random.Generator) -> list[int]:
    """Draw a quarter of the released parameters with a gradient, never all of them."""
    values = problem.released.values
    alive = [i for i, v in enumerate(values) if bool(torch.count_nonzero(v)) and v.ndim > 1]
    if len(alive) < 2:
        return []
    count = min(len(alive) - 1, max(1, len(alive) // 4))
    return sorted(int(i) for i in rng.choice(alive, size=count, replace=False))
