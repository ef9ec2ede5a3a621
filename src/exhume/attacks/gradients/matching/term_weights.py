"""Settings chosen by the release itself: a run must predict what was held out of it."""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace

import numpy as np
import torch

from exhume.attacks.gradients.matching.loop import (
    Descent,
    MatchingProblem,
    StepBudget,
    match,
    without,
)
from exhume.attacks.gradients.matching.objectives import Cosine, LayerCosine
from exhume.attacks.gradients.matching.optimisers import Optimiser
from exhume.attacks.gradients.matching.priors import ImagePrior
from exhume.derivatives.smoothed_relu import Continuation

CANDIDATES = (3e-3, 1e-2, 3e-2)


def chosen_variation(
    problem: MatchingProblem,
    prior: ImagePrior,
    optimiser: Optimiser,
    steps: int,
    rng: np.random.Generator,
    continuation: Continuation | None = None,
    *,
    candidates: tuple[float, ...] = CANDIDATES,
) -> float:
    """Return the total-variation weight whose short run best predicts the held-out layers.

    A random quarter of the released parameters is masked out of each run and compared with the
    result afterwards by cosine. Every candidate starts from the same point. The truth is never
    used. Costs ``len(candidates)`` runs of ``steps``.
    """
    held = held_out(problem, rng)
    if not held:
        return candidates[len(candidates) // 2]
    seed = int(rng.integers(2**31))
    scores = []
    for weight in candidates:
        fitted = replace(without(problem, held), total_variation=weight)
        stream = np.random.default_rng(seed)
        budget = StepBudget(steps=steps)
        found = match(fitted, prior, optimiser, budget, stream, continuation=continuation).best
        rest = [i for i in range(len(problem.released.values)) if i not in held]
        checked = without(problem, rest)
        simulated = checked.simulate(found.images, found.labels)
        scores.append(float(Cosine()(simulated, checked.released).detach()))
    return candidates[int(np.nanargmin(scores))] if np.isfinite(scores).any() else candidates[1]


def held_out(problem: MatchingProblem, rng: np.random.Generator) -> list[int]:
    """Draw a quarter of the released parameters that have a gradient, never all of them."""
    values = problem.released.values
    alive = [i for i, v in enumerate(values) if bool(torch.count_nonzero(v)) and v.ndim > 1]
    if len(alive) < 2:
        return []
    count = min(len(alive) - 1, max(1, len(alive) // 4))
    return sorted(int(i) for i in rng.choice(alive, size=count, replace=False))


@dataclass(frozen=True)
class TermWeights:
    """The weights of the terms other than the distance; None means to be chosen."""

    total_variation: float | None
    batch_norm: float | None
    feature: float | None

    def put_into(self, problem: MatchingProblem) -> MatchingProblem:
        """Return the problem with these weights; terms that are None are disabled."""
        return replace(
            problem,
            total_variation=self.total_variation or 0.0,
            batch_norm=self.batch_norm or 0.0,
            feature=self.feature or 0.0,
        )

    def where_given(self, given: TermWeights) -> TermWeights:
        """Return ``given``, completed with these weights where it has None."""
        pairs = zip(astuple(given), astuple(self), strict=True)
        return TermWeights(*(own if one is None else one for one, own in pairs))


USUAL = TermWeights(1e-2, 1.0, 0.1)
"""Weights for a trained residual network (Liu et al. 2024, appendix F, in the units used here)."""
SHARES = TermWeights(0.02, 0.03, 0.5)
"""The slope of each term relative to that of the distance, early in a run."""
FURTHEST = 10.0
"""Chosen weights stay within this factor of the usual ones."""
BETTER = 0.95
"""Unusual weights must lower the evidence to this share of that of the usual ones."""
SHORTEST = 12
"""The least number of steps of a trial run."""


def chosen_weights(
    problem: MatchingProblem,
    prior: ImagePrior,
    optimiser: Optimiser,
    steps: int,
    rng: np.random.Generator,
    continuation: Continuation | None = None,
    *,
    given: TermWeights,
) -> TermWeights:
    """Return the weights for a run of ``steps``.

    Two short runs (together a twelfth of the steps) start from the same point, with the same layers
    held out. The first has the usual weights. The second has weights that give the slope of each
    term, at the end of the first run, its share of the distance's slope by ``SHARES``. The weights
    that predict the held-out layers and the known statistics better are chosen, or the usual ones
    in doubt. The truth is never used.
    """
    usual = _applicable(USUAL, problem).where_given(given)
    held = held_out(problem, rng)
    if None not in astuple(given) or not held:
        return usual
    pilot, seed = max(SHORTEST, steps // 25), int(rng.integers(2**31))

    def tried(weights: TermWeights) -> Descent:
        posed = weights.put_into(without(problem, held))
        stream = np.random.default_rng(seed)
        budget = StepBudget(steps=pilot)
        return match(posed, prior, optimiser, budget, stream, continuation=continuation).best

    first = tried(usual)
    balanced = balanced_weights(problem, first).where_given(given)
    second = tried(balanced)
    scores = [_evidence(problem, held, run) for run in (first, second)]
    return balanced if scores[1] < BETTER * scores[0] else usual


def balanced_weights(problem: MatchingProblem, run: Descent) -> TermWeights:
    """Return weights that give each term's slope at a run's images its share in ``SHARES``."""
    pull = _slope(problem, run, TermWeights(None, None, None))
    found = []
    for name in ("total_variation", "batch_norm", "feature"):
        share, usual = getattr(SHARES, name), getattr(USUAL, name)
        alone = replace(TermWeights(None, None, None), **{name: 1.0})
        own = _slope(problem, run, alone)
        weight = share * pull / own if own > 0 else usual
        found.append(float(np.clip(weight, usual / FURTHEST, usual * FURTHEST)))
    return _applicable(TermWeights(*found), problem)


def _slope(problem: MatchingProblem, run: Descent, weights: TermWeights) -> float:
    """Return the norm of the slope at the images of the one weighted term, or of the distance.

    The slope is that of the exact network.
    """
    images = run.images.detach().clone().requires_grad_(True)
    total, distance = weights.put_into(problem).losses(problem.completed(images), run.labels)
    term = distance if weights == TermWeights(None, None, None) else total - distance
    if not term.requires_grad:
        return 0.0
    return float(torch.autograd.grad(term, images, materialize_grads=True)[0].norm())


def _evidence(problem: MatchingProblem, held: list[int], run: Descent) -> float:
    """Return the distance of the held-out layers and the known statistics from those of a run."""
    rest = [i for i in range(len(problem.released.values)) if i not in held]
    checked = replace(without(problem, rest), distance=LayerCosine())
    posed = TermWeights(None, USUAL.batch_norm, None).put_into(checked)
    return float(posed.losses(run.images, run.labels)[0].detach())


def _applicable(weights: TermWeights, problem: MatchingProblem) -> TermWeights:
    """Return the weights with 0 for terms that the problem does not have."""
    image = len(problem.frame.record_shape) > 1
    return TermWeights(
        weights.total_variation if image else 0.0,
        weights.batch_norm if problem.statistics else 0.0,
        weights.feature if problem.features is not None else 0.0,
    )
