"""Settings chosen by the release itself: what was held out of the match must be predicted by it."""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace

import numpy as np
import torch

from exhume.attacks.matching.continuation import Continuation
from exhume.attacks.matching.core import Budget, Problem, Run, match, without
from exhume.attacks.matching.objectives import Cosine, LayerCosine
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


@dataclass(frozen=True)
class Weights:
    """How much the terms beside the distance count; None is to be chosen."""

    total_variation: float | None
    batch_norm: float | None
    feature: float | None

    def put_into(self, problem: Problem) -> Problem:
        """Return the problem with these weights, terms that are None left out."""
        return replace(
            problem,
            total_variation=self.total_variation or 0.0,
            batch_norm=self.batch_norm or 0.0,
            feature=self.feature or 0.0,
        )

    def where_given(self, given: Weights) -> Weights:
        """Return ``given``, and these weights where it has none."""
        pairs = zip(astuple(given), astuple(self), strict=True)
        return Weights(*(own if one is None else one for one, own in pairs))


USUAL = Weights(1e-2, 1.0, 0.1)
"""What serves a trained residual network (Liu et al. 2024, appendix F, in the units used here)."""
SHARES = Weights(0.02, 0.03, 0.5)
"""How hard a term is to pull at the images beside the distance, early in a run."""
FURTHEST = 10.0
"""Chosen weights stay within this factor of the usual ones."""
BETTER = 0.95
"""Unusual weights must lower the evidence to this part of the usual ones'."""
SHORTEST = 12
"""Steps of a trial run at least."""


def chosen_weights(
    problem: Problem,
    prior: Prior,
    optimiser: Optimiser,
    steps: int,
    rng: np.random.Generator,
    continuation: Continuation | None = None,
    *,
    given: Weights,
) -> Weights:
    """Return the weights to run ``steps`` with.

    Two short runs (a twelfth of the steps in all) from one start, some layers held out of both:
    the first with the usual weights; the second with weights in which each term pulls at the images
    as hard, beside the distance, as it should by ``SHARES``, where the first run ended. Whichever
    predicts the held-out layers and the known statistics better is taken, the usual ones in doubt.
    The truth plays no part.
    """
    usual = _applicable(USUAL, problem).where_given(given)
    held = held_out(problem, rng)
    if None not in astuple(given) or not held:
        return usual
    pilot, seed = max(SHORTEST, steps // 25), int(rng.integers(2**31))

    def tried(weights: Weights) -> Run:
        posed = weights.put_into(without(problem, held))
        stream = np.random.default_rng(seed)
        budget = Budget(steps=pilot)
        return match(posed, prior, optimiser, budget, stream, continuation=continuation).best

    first = tried(usual)
    balanced = balanced_weights(problem, first).where_given(given)
    second = tried(balanced)
    scores = [_evidence(problem, held, run) for run in (first, second)]
    return balanced if scores[1] < BETTER * scores[0] else usual


def balanced_weights(problem: Problem, run: Run) -> Weights:
    """Return weights with which each term's slope at a run's images has its share of ``SHARES``."""
    pull = _slope(problem, run, Weights(None, None, None))
    found = []
    for name in ("total_variation", "batch_norm", "feature"):
        share, usual = getattr(SHARES, name), getattr(USUAL, name)
        alone = replace(Weights(None, None, None), **{name: 1.0})
        own = _slope(problem, run, alone)
        weight = share * pull / own if own > 0 else usual
        found.append(float(np.clip(weight, usual / FURTHEST, usual * FURTHEST)))
    return _applicable(Weights(*found), problem)


def _slope(problem: Problem, run: Run, weights: Weights) -> float:
    """Return the length of the slope at the images of the one term with a weight, or the distance.

    The network is the exact one.
    """
    images = run.images.detach().clone().requires_grad_(True)
    total, distance = weights.put_into(problem).losses(problem.completed(images), run.labels)
    term = distance if weights == Weights(None, None, None) else total - distance
    if not term.requires_grad:
        return 0.0
    return float(torch.autograd.grad(term, images, materialize_grads=True)[0].norm())


def _evidence(problem: Problem, held: list[int], run: Run) -> float:
    """Return how far the held-out layers, and the known statistics, are from a run's own."""
    rest = [i for i in range(len(problem.released.values)) if i not in held]
    checked = replace(without(problem, rest), distance=LayerCosine())
    posed = Weights(None, USUAL.batch_norm, None).put_into(checked)
    return float(posed.losses(run.images, run.labels)[0].detach())


def _applicable(weights: Weights, problem: Problem) -> Weights:
    """Return the weights with 0 for terms that the problem does not have."""
    image = len(problem.frame.record_shape) > 1
    return Weights(
        weights.total_variation if image else 0.0,
        weights.batch_norm if problem.statistics else 0.0,
        weights.feature if problem.features is not None else 0.0,
    )
