"""If the solver stopped early: train again with the candidate, and subtract the remaining gradient.

A deterministic solver leaves a gradient r(x). The adversary can compute it for any candidate x. At
the true record, g = x̃ cᵀ + r(x). So the attack solves with the last candidate's r, and repeats
this until x no longer changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from exhume.attacks.linear.read_release import Reading, Shared
from exhume.protocol.arrays import FloatArray
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.records import Records

RANDOM_SOLVERS = ("sag", "saga")
Answering = Callable[[Reading, Knowledge], Reconstruction]


@dataclass(frozen=True, eq=False)
class _Rehearsal:
    """A training with a candidate: the distance of its parameters, and the remaining gradient."""

    mismatch: float
    left: FloatArray


def can_rehearse(reading: Reading) -> bool:
    """Whether the solver is unfinished and deterministic, and its parameters without noise."""
    solver = reading.model.solver.name
    exact = solver in ("exact", "lstsq", "cholesky", "svd")
    return not exact and solver not in RANDOM_SOLVERS and not reading.noisy_parameters


def rehearsed(
    reading: Reading,
    knowledge: Knowledge,
    shared: Shared,
    first: Reconstruction,
    answer: Answering,
    *,
    rounds: int,
) -> Reconstruction:
    """Return the answer whose repeated training ends closest to the released parameters."""
    best, best_mismatch = first, np.inf
    for start in _starts(reading, knowledge, shared, first):
        before = _rehearse(reading, shared, start)
        if before is None:
            continue
        found, mismatch = _descend(reading, knowledge, shared, start, answer, rounds)
        # A repeated training proves something only if it ends far closer than that of the start.
        if found is not None and mismatch < min(best_mismatch, 1e-2 * before.mismatch):
            best, best_mismatch = found, mismatch
        if best_mismatch < 1e-9:
            break
    if best is first:
        return first
    stats = {**best.stats, "rehearsal_mismatch": best_mismatch}
    return replace(best, stats=stats)


def _descend(
    reading: Reading,
    knowledge: Knowledge,
    shared: Shared,
    start: Records,
    answer: Answering,
    rounds: int,
) -> tuple[Reconstruction | None, float]:
    candidate, left = start, None
    found: Reconstruction | None = None
    best: tuple[Reconstruction | None, float] = (None, np.inf)
    for _ in range(rounds):
        rehearsal = _rehearse(reading, shared, candidate)
        if rehearsal is None:
            break
        if found is not None and rehearsal.mismatch < best[1]:
            best = (found, rehearsal.mismatch)
        elif found is not None and rehearsal.mismatch > 4.0 * best[1]:
            break
        change = rehearsal.left if left is None else rehearsal.left - left
        deviation = float(np.sqrt(np.mean(change**2)))
        # The first step is always taken: only the next repeated training shows whether it helped.
        trust = 0.3 if left is None else 1.0
        corrected = _corrected(reading, rehearsal.left, trust * deviation)
        found = answer(corrected, knowledge)
        if left is None and not len(found):
            corrected = _corrected(reading, rehearsal.left, 0.01 * deviation)
            found = answer(corrected, knowledge)
        left = rehearsal.left
        if not len(found) or found.labels is None or found.status is Status.WRONG_ASSUMPTION:
            break
        candidate = Records(found.samples[:1], found.labels[:1])
    return best


def _corrected(reading: Reading, left: FloatArray, deviation: float) -> Reading:
    """The reading without the solver's remaining gradient; from here on it counts as finished."""
    finished = replace(reading.model, solver=replace(reading.model.solver, name="exact"))
    return replace(
        reading,
        model=finished,
        gradient=reading.gradient - left,
        gradient_deviation=max(deviation, reading.rounding),
    )


def _rehearse(reading: Reading, shared: Shared, candidate: Records) -> _Rehearsal | None:
    # With a record a million times larger than the others, a solver uses its whole budget.
    if float(np.abs(candidate.x).max()) > 1e6 * float(np.abs(shared.fixed_set.x).max()):
        return None
    if shared.fixed_set.weight is not None or shared.extra_weight != 1.0:
        candidate = replace(candidate, weight=np.array([shared.extra_weight]))
    try:
        data = shared.fixed_set.with_record(candidate)
        weights = reading.model.publish(data, rng=np.random.default_rng(0))
    except (InputError, ValueError):
        # If the solver fails on a candidate, the candidate is simply bad.
        return None
    theta = reading.model.theta(weights.parameters)
    scaler = {n: a for n, a in weights.parameters.items() if n.startswith("scaler.")}
    left = reading.model.problem(data, scaler).gradient(theta)
    mismatch = float(np.linalg.norm(theta - reading.theta) / np.linalg.norm(reading.theta))
    return _Rehearsal(mismatch, left)


def _starts(
    reading: Reading, knowledge: Knowledge, shared: Shared, first: Reconstruction
) -> list[Records]:
    """Start from the first answer, or from each class's mean if there is no reliable answer."""
    starts = []
    if len(first) and first.labels is not None:
        starts.append(Records(first.samples[:1], first.labels[:1]))
        if first.status is Status.CONVERGED:
            return starts
    labels = shared.fixed_set.labels
    choices = np.unique(labels) if reading.model.classes else [np.mean(labels)]
    if knowledge.labels is not None:
        choices = knowledge.labels
    for label in choices:
        rows = shared.fixed_set.x[labels == label] if reading.model.classes else shared.fixed_set.x
        starts.append(Records(rows.mean(axis=0)[None], np.array([label])))
    return starts
