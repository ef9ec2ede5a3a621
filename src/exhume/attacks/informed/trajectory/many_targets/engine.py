"""From releases to reconstructions: one engine for all targets of a training.

It also judges each answer: the accuracy that the release allows, and the accuracy reached.

The residual of an answer says how well it explains the release. Rounding sets its lower limit: the
released training ran in its own precision, the simulation in another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from exhume.attacks.informed.trajectory.many_targets.first_layer_inverse import (
    Preconditioner,
    SignalSimulator,
)
from exhume.attacks.informed.trajectory.many_targets.label_probes import simulate_probes
from exhume.attacks.informed.trajectory.many_targets.linearisation import LocalMaps
from exhume.attacks.informed.trajectory.many_targets.search import (
    HOPELESS,
    Engine,
    Goal,
    Trail,
    ValueBox,
    attempt,
)
from exhume.attacks.informed.trajectory.problem import TrajectoryProblem
from exhume.models.initialise import GivenInitialisation
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Stat, Status
from exhume.protocol.records import Records
from exhume.protocol.release import Release, Weights
from exhume.protocol.seeds import stream
from exhume.training.fixed_set_run import Nominal, RecordTile
from exhume.training.network import Training

_SMALL = 5e7
"""Up to this many multiplications of a training, everything is done in double precision."""
_VAGUE = 0.2
"""An answer with an error above this share of the fixed set's deviation is rejected."""
_MARGIN, _SLACK = 0.02, 0.3
"""How far the search may leave the known range, and how much further close to an answer."""


def invert_many(
    problem: TrajectoryProblem,
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


def _engine(problem: TrajectoryProblem) -> Engine:
    fixed, training = problem.fixed_set, problem.training
    size = len(fixed) * training.network.parameter_count() * training.epochs
    dtype = torch.float64 if size <= _SMALL else torch.float32
    simulator = SignalSimulator(training, fixed, dtype=dtype)
    rows = np.asarray(fixed.x, dtype=np.float64).reshape(len(fixed), -1)
    spread = float(np.sqrt(rows.var(axis=0).sum()))
    reach = 0.4 * (spread or float(np.linalg.norm(rows[0])) or 1.0)
    preconditioner = Preconditioner(simulator.nominal)
    maps = LocalMaps(preconditioner)
    return Engine(simulator, preconditioner, maps, simulate_probes(simulator), reach)


def _goal(
    engine: Engine, problem: TrajectoryProblem, release: Release, known: Knowledge, seen: Dynamics
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


def _box(known: Knowledge) -> ValueBox:
    size = int(np.prod(known.record_shape))
    low, high, slack = np.full(size, -np.inf), np.full(size, np.inf), 0.0
    if known.value_range is not None:
        extent = known.value_range[1] - known.value_range[0]
        margin, slack = _MARGIN * extent, _SLACK * extent
        low[:], high[:] = known.value_range[0] - margin, known.value_range[1] + margin
    if known.known_attributes is not None:
        mask = known.known_attributes.mask.ravel()
        low[mask] = high[mask] = known.known_attributes.values.ravel()[mask]
    return ValueBox(low, high, slack)


def _answer(
    trail: Trail, problem: TrajectoryProblem, known: Knowledge, seen: Dynamics
) -> Reconstruction:
    """Report the result and its accuracy."""
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
        message = f"the noise on the release allows an error of {error:.1e}"
    elif trail.certified:
        status = Status.CONVERGED
        message = f"training with this record again ends within {best.residual:.1e} of the release"
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


def _deviation(problem: TrajectoryProblem) -> float:
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
    problem: TrajectoryProblem,
    known: Knowledge,
    seen: Dynamics,
    reason: str,
) -> Reconstruction:
    """Answer with the most likely known record, and say why it is only a guess."""
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
    problem: TrajectoryProblem,
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


_NUDGE = 1e-6
_ENGINE = {torch.float32: 3e-6, torch.float64: 1e-10}
"""Relative error of a simulated difference."""
_RANK_ONE = 0.3


@dataclass(frozen=True)
class Dynamics:
    """The training itself; ``rounding`` is the length of the error due to its precision.

    ``amplification`` is the factor by which training lengthens a small change of the
    initialisation. ``rises`` is the number of steps at which the loss rose (None for mini-batches).
    """

    rounding: float
    amplification: float
    rises: int | None
    engine: float

    def tolerance(self, observed: FloatArray, deviation: float, unknowns: int) -> float:
        """Return the relative residual that the best answer may leave.

        The best answer fits as many components of the noise as there are ``unknowns``.
        """
        size = max(float(np.linalg.norm(observed)), 1e-300)
        noise = deviation * np.sqrt(max(observed.size - unknowns, 1))
        return float(np.hypot(self.rounding, noise) / size) + self.engine


def dynamics(simulator: SignalSimulator) -> Dynamics:
    """Repeat the training without the target twice: in its own precision, and from nearby."""
    training, nominal = simulator.training, simulator.nominal
    rounding = float(np.linalg.norm(_repeated(training, simulator.fixed_set) - simulator.base))
    start = training.initial.draw(training.network, np.random.default_rng(0))
    theta = np.concatenate([part.ravel() for part in start.values()])
    nudge = stream(0, "trajectory-inversion", "nudge").standard_normal(theta.size)
    nudge *= _NUDGE * max(float(np.linalg.norm(theta)), 1e-300) / np.linalg.norm(nudge)
    objective = training.objective("float64")
    beside = GivenInitialisation(parameters=objective.named(objective.tensor(theta + nudge)))
    nearby = replace(training, precision="float64", initial=beside)
    moved = float(np.linalg.norm(_repeated(nearby, simulator.fixed_set) - simulator.base))
    return Dynamics(
        rounding,
        moved / float(np.linalg.norm(nudge)),
        None if training.batches is not None else _rises(nominal),
        _ENGINE[nominal.dtype],
    )


def contradiction(
    nominal: Nominal, observed: FloatArray, deviation: float, typical: float
) -> str | None:
    """Return why no record can explain a release, or None.

    Outside the span of the fixed set's inputs, only the target moves the first layer, and only in
    its own direction. The change there therefore has rank one. ``typical`` is the longest
    difference that a known record causes.
    """
    size = float(np.linalg.norm(observed))
    if size > 100.0 * typical + 10.0 * deviation * np.sqrt(observed.size):
        return (
            f"the release is {size / max(typical, 1e-300):.1e} times as far from the training "
            "without the target as any known record would move it"
        )
    inputs = nominal.widths[0] + 1
    if inputs - nominal.basis.shape[1] < 2 or nominal.widths[1] < 2:
        return None
    first, _ = nominal.layers(observed)
    beyond = first - (first @ nominal.basis) @ nominal.basis.T
    sizes = np.linalg.svd(beyond, compute_uv=False)
    noise = 3.0 * deviation * (np.sqrt(inputs) + np.sqrt(len(first))) + 1e-4 * size
    if sizes[1] > _RANK_ONE * sizes[0] + noise:
        return (
            "in directions without the fixed set, more than one record moved the first layer: "
            f"singular values {sizes[0]:.1e}, {sizes[1]:.1e}; another initialisation?"
        )
    return None


def _repeated(training: Training, fixed_set: Records) -> FloatArray:
    """Return θ of the training in which the last record has weight 0, in its own precision."""
    weight = np.ones(len(fixed_set)) if fixed_set.weight is None else fixed_set.weight
    blank = Records(np.zeros((1, *fixed_set.record_shape)), fixed_set.labels[:1], np.zeros(1))
    data = Records(fixed_set.x, fixed_set.y, weight).with_record(blank)
    try:
        theta = training.run(training.objective(), data, rng=np.random.default_rng(0))
    except InputError:
        return np.full(training.network.parameter_count(), np.inf)
    return np.asarray(theta.double().cpu().numpy())


def _rises(nominal: Nominal) -> int:
    losses = [sum(_loss(tile) for tile in step.tiles) for step in nominal.steps()]
    return int((np.diff(losses) > 0).sum())


def _loss(tile: RecordTile) -> float:
    """Return the given records' part of the mean loss's gradient, from their signals."""
    signal = tile.delta[-1]
    if tile.p is None:
        return float((0.5 * signal.square() / tile.share.clamp_min(1e-30)).sum())
    own = signal.argmin(dim=0)
    p = tile.p.gather(0, own[None])[0]
    return float(-(p.clamp_min(1e-30).log() * tile.share).sum())
