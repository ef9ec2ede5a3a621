"""Trajectory inversion for any training that can be repeated, end to end."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from exhume.attacks.trajectory.noisy import noise_deviation
from exhume.attacks.trajectory.noisy_search import NoisySearch
from exhume.attacks.trajectory.observation import reading
from exhume.attacks.trajectory.prior import Prior
from exhume.attacks.trajectory.search import Effort, Prepared, Search
from exhume.attacks.trajectory.starts import simulate_references
from exhume.attacks.trajectory.unroll import unroll
from exhume.defences.base import undefended
from exhume.errors import InputError
from exhume.knowledge import Knowledge
from exhume.reconstruction import Reconstruction
from exhume.release import Release
from exhume.training.answers import Answers
from exhume.training.network import Training

__all__ = ["Effort", "Prepared", "invert", "prepare", "slackened", "trained_network"]

_BLUR = 0.2
"""How far from a kink the rough Jacobians still see it."""
SLIGHT = 3e-4
"""Noise below this share of the record's trace is left to the plain search: no prior would help."""


def prepare(
    release: Release,
    knowledge: Knowledge,
    rng: np.random.Generator,
    *,
    effort: Effort | None = None,
) -> Prepared:
    """Do the work that does not depend on what this release says, only on its kind.

    Raises InputError where the release can't be read or the training can't be repeated.
    """
    effort = Effort() if effort is None else effort
    training, fixed_set = trained_network(knowledge), knowledge.fixed_set
    if fixed_set is None:
        raise InputError("the fixed set is not known: there is no training to repeat")
    double, single = training.objective("float64"), training.objective("float32")
    read = reading(release, double)
    exact, rough = (
        unroll(
            training,
            fixed_set,
            reading(release, objective).observation,
            objective=objective,
            target_weight=knowledge.target_weight,
            blur=blur,
        )
        for objective, blur in ((double, 0.0), (single, _BLUR))
    )
    references = simulate_references(
        rough, training, fixed_set, each=effort.each, crossed=effort.crossed, rng=rng
    )
    return Prepared(training, double, read, exact, rough, references)


def trained_network(knowledge: Knowledge) -> Training:
    """Return the network's training under whatever answers or defends it, or raise InputError."""
    mechanism = knowledge.training
    inner = None if mechanism is None else undefended(mechanism)
    if isinstance(inner, Answers):
        inner = undefended(inner.inner)
    if not isinstance(inner, Training):
        raise InputError(f"the training of a network must be known, got {mechanism}")
    return inner


def invert(
    release: Release,
    knowledge: Knowledge,
    rng: np.random.Generator,
    *,
    effort: Effort | None = None,
    prepared: Prepared | None = None,
    prior: Prior | None = None,
) -> Reconstruction:
    """Solve θ(x) = θ* for the one unknown record, its label included where it isn't known.

    ``prepared`` may come from another release of the same kind, training and fixed set. The answer
    is CONVERGED only where training again with it ends at the release: at a relative residual of at
    most ``effort.certificate``, or within the noise that the mechanism is known to add. Under noise
    the answer is the most probable record under ``prior``, by default a Gaussian fitted to the pool
    of records the adversary has.
    """
    effort = Effort() if effort is None else effort
    if prepared is None:
        prepared = prepare(release, knowledge, rng, effort=effort)
    search = Search(prepared, reading(release, prepared.objective), knowledge, effort)
    fixed_set = knowledge.fixed_set
    assert fixed_set is not None
    noise = noise_deviation(knowledge.training, prepared.training, fixed_set, prepared.exact)
    share = 0.0 if noise is None else float(noise.norm()) / search.problem.scale
    if noise is None or share < SLIGHT:
        search.effort = slackened(effort, share)
        return search.answer(search.run(), rng)
    return NoisySearch(search, noise, prior).answer(rng)


def slackened(effort: Effort, share: float) -> Effort:
    """Return the effort with tolerances that noise of this share of the trace allows."""
    return replace(
        effort,
        tolerance=max(effort.tolerance, 1.1 * share),
        certificate=max(effort.certificate, math.sqrt(2.0) * share),
    )
