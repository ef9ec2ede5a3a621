"""When the solver stopped early: train again with the candidate, and take off what the solver left.

A deterministic solver leaves a gradient r(x) that the adversary can compute for any candidate x. At
the truth, g = x̃ cᵀ + r(x): so solve with the last candidate's r, and repeat until x stays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from exhume.arrays import FloatArray
from exhume.attacks.glm.reading import Reading, Shared
from exhume.errors import InputError
from exhume.knowledge import Knowledge
from exhume.reconstruction import Reconstruction, Status
from exhume.records import Records

RANDOM_SOLVERS = ("sag", "saga")
Answering = Callable[[Reading, Knowledge], Reconstruction]


@dataclass(frozen=True, eq=False)
class _Rehearsal:
    """A training run with a candidate in it: how far off its parameters are, and what it left."""

    mismatch: float
    left: FloatArray


def can_rehearse(reading: Reading) -> bool:
    """Tell whether the solver is unfinished, deterministic, and its parameters not blurred."""
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
    """Return the answer whose rehearsal comes closest to the released parameters."""
    best, best_mismatch = first, np.inf
    for start in _starts(reading, knowledge, shared, first):
        before = _rehearse(reading, shared, start)
        if before is None:
            continue
        found, mismatch = _descend(reading, knowledge, shared, start, answer, rounds)
        # Only a rehearsal that lands far closer than the start's certifies anything.
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
        # The first step is taken on trust: whether it led anywhere shows in the next rehearsal.
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
    """The reading with what the solver left taken off; it counts as finished from here on."""
    finished = replace(reading.model, solver=replace(reading.model.solver, name="exact"))
    return replace(
        reading,
        model=finished,
        gradient=reading.gradient - left,
        gradient_deviation=max(deviation, reading.rounding),
    )


def _rehearse(reading: Reading, shared: Shared, candidate: Records) -> _Rehearsal | None:
    # A record a million times larger than all others keeps a solver busy for its whole budget.
    if float(np.abs(candidate.x).max()) > 1e6 * float(np.abs(shared.fixed_set.x).max()):
        return None
    if shared.fixed_set.weight is not None or shared.extra_weight != 1.0:
        candidate = replace(candidate, weight=np.array([shared.extra_weight]))
    try:
        data = shared.fixed_set.with_record(candidate)
        weights = reading.model.publish(data, rng=np.random.default_rng(0))
    except (InputError, ValueError):
        # A candidate that the solver can't digest is simply a bad candidate.
        return None
    theta = reading.model.theta(weights.parameters)
    scaler = {n: a for n, a in weights.parameters.items() if n.startswith("scaler.")}
    left = reading.model.problem(data, scaler).gradient(theta)
    mismatch = float(np.linalg.norm(theta - reading.theta) / np.linalg.norm(reading.theta))
    return _Rehearsal(mismatch, left)


def _starts(
    reading: Reading, knowledge: Knowledge, shared: Shared, first: Reconstruction
) -> list[Records]:
    """Start from the first answer; where there is none to trust, from each class's mean."""
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
