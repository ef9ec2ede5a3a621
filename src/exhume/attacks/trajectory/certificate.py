"""What an answer is worth: how close the release lets it come, and how close it came.

The residual of an answer says how well it explains the release. It can't fall below what rounding
leaves: the released training ran in its own precision, the simulation in another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from exhume.arrays import FloatArray
from exhume.attacks.trajectory.preconditioner import SignalSimulator
from exhume.attacks.trajectory.problem import Given
from exhume.errors import InputError
from exhume.records import Records
from exhume.seeds import stream
from exhume.training.network import Training
from exhume.training.nominal import Nominal, Tile

_NUDGE = 1e-6
_ENGINE = {torch.float32: 3e-6, torch.float64: 1e-10}
"""Relative error of a simulated difference."""
_RANK_ONE = 0.3


@dataclass(frozen=True)
class Dynamics:
    """The training itself: ``rounding`` is the length of what its precision leaves uncertain.

    ``amplification`` tells how many times longer a small change of the initialisation is in the
    end; ``rises`` on how many steps the loss rose (None for mini-batches).
    """

    rounding: float
    amplification: float
    rises: int | None
    engine: float

    def tolerance(self, observed: FloatArray, deviation: float, unknowns: int) -> float:
        """Return the relative residual that the best answer may leave.

        Of noise it fits as many parts as there are ``unknowns``.
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
    nearby = replace(training, precision="float64", initial=Given(theta=theta + nudge))
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
    """Say why no record can explain a release, or return None.

    Outside the span of the fixed set's inputs the first layer is moved by the target alone, along
    the target alone: its change there has rank one. ``typical`` is the longest difference that a
    known record makes.
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
            "where the fixed set can't move the first layer, it was moved along more than one "
            f"record: singular values {sizes[0]:.1e}, {sizes[1]:.1e}; another initialisation?"
        )
    return None


def _repeated(training: Training, fixed_set: Records) -> FloatArray:
    """Return θ of the training in which a last record counts nothing, in its own precision."""
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


def _loss(tile: Tile) -> float:
    """Return some records' share of the mean loss, read off their signals."""
    signal = tile.delta[-1]
    if tile.p is None:
        return float((0.5 * signal.square() / tile.share.clamp_min(1e-30)).sum())
    own = signal.argmin(dim=0)
    p = tile.p.gather(0, own[None])[0]
    return float(-(p.clamp_min(1e-30).log() * tile.share).sum())
