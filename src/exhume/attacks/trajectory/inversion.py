"""From releases to reconstructions: one engine for all targets of a training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from exhume.arrays import Array, FloatArray
from exhume.attacks.trajectory.certificate import Dynamics, contradiction, dynamics
from exhume.attacks.trajectory.labels import simulate_probes
from exhume.attacks.trajectory.multisecant import Box
from exhume.attacks.trajectory.preconditioner import Preconditioner, SignalSimulator
from exhume.attacks.trajectory.problem import Problem
from exhume.attacks.trajectory.response import Response
from exhume.attacks.trajectory.schedule import HOPELESS, Engine, Goal, Trail, attempt
from exhume.knowledge import Knowledge
from exhume.reconstruction import Reconstruction, Stat, Status
from exhume.release import Release, Weights
from exhume.training.network import Training

_SMALL = 5e7
"""Multiplications of a training up to which everything is done in double precision."""
_VAGUE = 0.2
"""An error above this share of the fixed set's deviation is no answer, however well it fits."""
_MARGIN, _SLACK = 0.02, 0.3
"""How far out of the known range the search may go, and how much further close to an answer."""


def invert(
    problem: Problem,
    releases: Sequence[Release],
    knowledge: Sequence[Knowledge],
    *,
    iterations: int,
    retries: int,
) -> list[Reconstruction]:
    """Rebuild the target of each release; no answer depends on another release."""
    engine = _engine(problem)
    seen = dynamics(engine.simulator)
    nominal = engine.simulator.nominal
    goals, reasons = [], []
    typical = float(np.linalg.norm(engine.probes.differences, axis=1).max(initial=0.0))
    for release, known in zip(releases, knowledge, strict=True):
        goals.append(_goal(engine, problem, release, known, seen))
        reasons.append(contradiction(nominal, goals[-1].observed, problem.deviation, typical))
    open_ = [i for i, reason in enumerate(reasons) if reason is None]
    tried = attempt(engine, [goals[i] for i in open_], iterations=iterations, retries=retries)
    trails: dict[int, Trail] = dict(zip(open_, tried, strict=True))
    found = []
    for i, known in enumerate(knowledge):
        if i in trails:
            found.append(_answer(trails[i], problem, known, seen))
        else:
            found.append(_contradicted(engine, goals[i], problem, known, seen, str(reasons[i])))
    return found


def _engine(problem: Problem) -> Engine:
    fixed, training = problem.fixed_set, problem.training
    size = len(fixed) * training.network.parameter_count() * training.epochs
    dtype = torch.float64 if size <= _SMALL else torch.float32
    simulator = SignalSimulator(training, fixed, dtype=dtype)
    rows = np.asarray(fixed.x, dtype=np.float64).reshape(len(fixed), -1)
    spread = float(np.sqrt(rows.var(axis=0).sum()))
    reach = 0.4 * (spread or float(np.linalg.norm(rows[0])) or 1.0)
    preconditioner = Preconditioner(simulator.nominal)
    response = Response(preconditioner)
    return Engine(simulator, preconditioner, response, simulate_probes(simulator), reach)


def _goal(
    engine: Engine, problem: Problem, release: Release, known: Knowledge, seen: Dynamics
) -> Goal:
    assert isinstance(release, Weights)
    training = problem.training
    names = training.network.parameter_shapes()
    theta = np.concatenate([release.parameters[n].astype(np.float64).ravel() for n in names])
    with np.errstate(over="ignore"):
        observed = np.clip(theta, -1e100, 1e100) - engine.simulator.base
    response = None if known.labels is None else float(training.responses(known.labels)[0])
    box = _box(known)
    tolerance = seen.tolerance(observed, problem.deviation, int((box.low < box.high).sum()))
    return Goal(observed, box, tolerance, response)


def _box(known: Knowledge) -> Box:
    size = int(np.prod(known.record_shape))
    low, high, slack = np.full(size, -np.inf), np.full(size, np.inf), 0.0
    if known.value_range is not None:
        extent = known.value_range[1] - known.value_range[0]
        margin, slack = _MARGIN * extent, _SLACK * extent
        low[:], high[:] = known.value_range[0] - margin, known.value_range[1] + margin
    if known.known_attributes is not None:
        mask = known.known_attributes.mask.ravel()
        low[mask] = high[mask] = known.known_attributes.values.ravel()[mask]
    return Box(low, high, slack)


def _answer(trail: Trail, problem: Problem, known: Knowledge, seen: Dynamics) -> Reconstruction:
    """Say what was reached, and what it is worth."""
    best, goal = trail.best, trail.goal
    if best.heard is None:
        return Reconstruction(
            np.empty((0, *known.record_shape)),
            Status.NOT_CONVERGED,
            message="no simulated training ended in finite numbers",
        )
    error = _error(trail)
    if trail.certified and error > _VAGUE * _deviation(problem):
        status = Status.APPROXIMATE
        message = f"what noise leaves of the release allows an error of {error:.1e}"
    elif trail.certified:
        status = Status.CONVERGED
        message = f"training again with this record ends within {best.residual:.1e} of the release"
    elif best.residual > HOPELESS and len(trail.pursuits) > 1:
        status = Status.WRONG_ASSUMPTION
        message = "no label and no start explains the release better than no record at all"
    else:
        status = Status.NOT_CONVERGED
        message = f"the best record leaves {best.residual:.1%} of the difference unexplained"
    return _reconstruction(
        problem,
        known,
        seen,
        x=best.best,
        response=best.response,
        status=status,
        message=message,
        error=error,
        residual=best.residual,
        floor=goal.tolerance,
        simulations=trail.simulations,
    )


def _deviation(problem: Problem) -> float:
    """Return the root-mean-square deviation of an entry in the fixed set."""
    return float(np.sqrt(np.asarray(problem.fixed_set.x, dtype=np.float64).var(axis=0).mean()))


def _error(trail: Trail) -> float:
    """Estimate the root-mean-square error of the answer, in the record's units."""
    best, preconditioner = trail.best, trail.engine.preconditioner
    assert best.heard is not None
    gap = best.gap
    step = preconditioner.steps(gap[None], best.heard.signals)[0]
    white = float(np.linalg.norm(gap) / np.sqrt(gap.size))
    spread = preconditioner.spread(best.heard.signals[0])
    return float(np.hypot(np.sqrt(np.mean(step**2)), white * spread))


def _contradicted(
    engine: Engine,
    goal: Goal,
    problem: Problem,
    known: Knowledge,
    seen: Dynamics,
    reason: str,
) -> Reconstruction:
    """Answer with the likeliest known record, and why it is nothing more."""
    trail = Trail(engine, goal)
    response = trail.labels[0]
    starts = engine.probes.starts(goal.observed, response)
    return _reconstruction(
        problem,
        known,
        seen,
        x=goal.box.clip(starts[0] if len(starts) else np.zeros(goal.box.low.size)),
        response=response,
        status=Status.WRONG_ASSUMPTION,
        message=reason,
        error=float("inf"),
        residual=1.0,
        floor=goal.tolerance,
        simulations=0,
    )


def _reconstruction(
    problem: Problem,
    known: Knowledge,
    seen: Dynamics,
    *,
    x: FloatArray,
    response: float,
    status: Status,
    message: str,
    error: float,
    residual: float,
    floor: float,
    simulations: int,
) -> Reconstruction:
    stats: dict[str, Stat] = {
        "relative_residual": residual,
        "residual_floor": floor,
        "amplification": seen.amplification,
        "simulations": simulations,
    }
    if seen.rises is not None:
        stats["steps_with_rising_loss"] = seen.rises
    return Reconstruction(
        x.reshape(1, *known.record_shape),
        status,
        labels=_label(problem.training, known, response),
        confidence=np.array([1.0 if status is Status.CONVERGED else 0.0]),
        error_estimate=np.array([error]),
        message=message,
        stats=stats,
    )


def _label(training: Training, known: Knowledge, response: float) -> Array:
    if known.labels is not None:
        return known.labels
    assert training.classes is not None
    return np.array([training.classes[int(response)]])
