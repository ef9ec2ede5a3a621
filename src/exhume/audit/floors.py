"""The error axis's lower end: what noise on a gradient leaves to unbiased attacks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from exhume.audit.setting import Setting
from exhume.defences import (
    DPSGD,
    ActivationDropout,
    Defence,
    MixUp,
    Noise,
    Pruning,
    Rounds,
    TopK,
    Transform,
)
from exhume.mechanism import Mechanism
from exhume.records import Records
from exhume.training.gradient import Aggregate, LocalSteps, gradient_step

if TYPE_CHECKING:
    from exhume.bounds.floors import Floor

_BATCHES = 1
"""Batches that a floor is measured on: it takes seconds each, and they are much alike."""
_PROBES, _STEPS = 6, 40
_MEMORY = 2**27


@dataclass(frozen=True)
class ErrorFloor:
    """No attack named in ``binds`` has a smaller root mean squared error than ``value``."""

    value: float | None
    binds: str = ""
    note: str = ""


def error_floor(setting: Setting) -> ErrorFloor | None:
    """Return the Cramér–Rao floor of a noisy gradient, averaged over a few batches of targets.

    None where no Gaussian noise of known size is added to what one client sends: without noise
    there is no floor.
    """
    found = _noisy(setting.mechanism, setting.records)
    if found is None or setting.batch is None or setting.targets is None:
        return None
    mechanism, deviation = found
    groups = setting.groups(range(setting.size))[:_BATCHES]
    batches = [setting.targets.take(list(group)) for group in groups]
    floors = [_of_batch(mechanism, deviation, batch) for batch in batches]
    squares = [floor.value for floor in floors]
    if not all(math.isfinite(square) for square in squares):
        note = next(floor.note for floor in floors if not math.isfinite(floor.value))
        return ErrorFloor(None, floors[0].binds.value, note)
    return ErrorFloor(math.sqrt(float(np.mean(squares))), floors[0].binds.value, floors[0].method)


def _noisy(mechanism: Mechanism, records: int) -> tuple[Mechanism, float] | None:
    """Return what noise is added to and its deviation, as the adversary has it in the end.

    Whatever is done after the noise can only lose, so that its floor holds there too.
    """
    rounds = 1
    while isinstance(mechanism, Rounds | Transform):
        rounds *= mechanism.rounds if isinstance(mechanism, Rounds) else 1
        mechanism = mechanism.inner
    inner: Mechanism
    match mechanism:
        case Noise(inner, size):
            deviation = size
        case DPSGD():
            inner, deviation = mechanism.clipped, mechanism.deviation(records)
        case _:
            return None
    return None if _draws(inner) else (inner, deviation / math.sqrt(rounds))


def _draws(mechanism: Mechanism) -> bool:
    """Tell whether something inside draws what an adversary does not know."""
    while isinstance(mechanism, Defence | LocalSteps | Aggregate):
        if isinstance(mechanism, MixUp | ActivationDropout | Noise | DPSGD | Rounds):
            return True
        if isinstance(mechanism, LocalSteps) and not mechanism.order_known:
            return True
        mechanism = mechanism.inner if isinstance(mechanism, Defence) else mechanism.client
    return gradient_step(mechanism) is None


def _of_batch(mechanism: Mechanism, deviation: float, batch: Records) -> Floor:
    """Return the floor at one batch, from the simulation that the adversary has."""
    import torch

    from exhume.attacks.matching.stack import simulation_of
    from exhume.bounds.floors import Probing, cramer_rao

    step = gradient_step(mechanism)
    assert step is not None
    release = mechanism.publish(batch, rng=np.random.default_rng(0))
    with torch.random.fork_rng(devices=[]):
        objective = step.objective("float64")
        arrays = {n: np.asarray(a, dtype=np.float64) for n, a in release.arrays()}
        simulation = simulation_of(mechanism, objective, step.parameters(), arrays)
        sent = [objective.tensor(np.ones_like(arrays[name])) for name in simulation.names]
        if isinstance(mechanism, Pruning | TopK):
            # What is held back carries nothing; the simulation leaves that to what was sent.
            sent = [objective.tensor(arrays[name] != 0.0) for name in simulation.names]
        y = objective.responses(step.responses(batch.labels))
        return cramer_rao(
            lambda x: [g * m for g, m in zip(simulation.release(x, y), sent, strict=True)],
            objective.tensor(batch.x),
            deviation,
            memory_limit=_MEMORY,
            probing=Probing(probes=_PROBES, steps=_STEPS),
        )
