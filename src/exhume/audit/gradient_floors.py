"""The floor on the error of unbiased attacks, by noise on a gradient.

The growth of the error under a defence in theory: the rates of Liu et al. 2024.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from exhume.audit.setting import ThreatSetting
from exhume.bounds.floors import liu
from exhume.defences import ActivationDropout, Clipping, GradientDropout, Noise
from exhume.protocol.defence import Defence, undefended
from exhume.protocol.mechanism import Mechanism, layers
from exhume.protocol.records import Records
from exhume.runlog.setting import ErrorFloor
from exhume.training.gradient import GradientStep, gradient_step
from exhume.training.local_steps import Aggregate, LocalSteps

if TYPE_CHECKING:
    from exhume.bounds.floors import Floor


_BATCHES = 1
"""The number of batches for a floor: each takes seconds, and they are similar."""
_PROBES, _STEPS = 6, 40
_MEMORY = 2**27


def error_floor(setting: ThreatSetting) -> ErrorFloor | None:
    """Return the Cramér–Rao floor of a noisy gradient, averaged over a few batches of targets.

    None if no Gaussian noise of known size is added to what one client sends: without noise there
    is no floor.
    """
    found = setting.mechanism.under_noise(setting.records)
    if found is None or setting.batch is None or setting.targets is None:
        return None
    mechanism, deviation = found
    if gradient_step(mechanism) is None or any(one.hides_draws for one in layers(mechanism)):
        return None
    groups = setting.groups(range(setting.size))[:_BATCHES]
    batches = [setting.targets.take(list(group)) for group in groups]
    floors = [_of_batch(mechanism, deviation, batch) for batch in batches]
    squares = [floor.value for floor in floors]
    if not all(math.isfinite(square) for square in squares):
        note = next(floor.note for floor in floors if not math.isfinite(floor.value))
        return ErrorFloor(None, floors[0].binds.value, note)
    return ErrorFloor(math.sqrt(float(np.mean(squares))), floors[0].binds.value, floors[0].method)


def _of_batch(mechanism: Mechanism, deviation: float, batch: Records) -> Floor:
    """Return the floor at one batch, from the simulation that the adversary has."""
    import torch

    from exhume.bounds.floors import Probing, cramer_rao
    from exhume.training.simulation import simulation_of

    step = gradient_step(mechanism)
    assert step is not None
    release = mechanism.publish(batch, rng=np.random.default_rng(0))
    with torch.random.fork_rng(devices=[]):
        objective = step.objective("float64")
        arrays = {n: np.asarray(a, dtype=np.float64) for n, a in release.arrays()}
        simulation = simulation_of(mechanism, objective, step.parameters(), arrays)
        sent = [objective.tensor(np.ones_like(arrays[name])) for name in simulation.names]
        if mechanism.keeps_largest:
            # Removed entries carry no information; the simulation keeps only what was sent.
            sent = [objective.tensor(arrays[name] != 0.0) for name in simulation.names]
        y = objective.responses(step.responses(batch.labels))
        return cramer_rao(
            lambda x: [g * m for g, m in zip(simulation.release(x, y), sent, strict=True)],
            objective.tensor(batch.x),
            deviation,
            memory_limit=_MEMORY,
            probing=Probing(probes=_PROBES, steps=_STEPS),
        )


def relative_rate(mechanism: Mechanism, records: int) -> float | None:
    """Return a defence's upper rate over that of none (Liu et al. 2024, Table 1).

    For one defence around a gradient of ``records`` records, or local steps; None for several
    defences, and if the table has no upper rate or one that depends on the gradient (DP-SGD,
    pruning). Rates are for two-layer networks and up to constants; in a ratio width and dimension
    cancel. The paper's gradient is a sum: noise on a mean counts as often as there are records.
    """
    network = liu.TwoLayerBatch(dimension=1, width=1, batch=records)
    found = _rates(mechanism, network, records)
    plain = liu.no_defence(network).upper
    if found is None or found.upper is None or plain is None:
        return None
    return found.upper / plain


def _rates(mechanism: Mechanism, network: liu.TwoLayerBatch, records: int) -> liu.Rates | None:
    if isinstance(mechanism, GradientStep):
        return liu.no_defence(network)
    if isinstance(mechanism, LocalSteps) and isinstance(mechanism.client, GradientStep):
        return liu.local_aggregation(network)
    if isinstance(mechanism, Aggregate) and isinstance(mechanism.client, GradientStep):
        # The batch of the release is that of all clients already.
        return liu.no_defence(network)
    if not isinstance(mechanism, Defence) or mechanism.inner is not undefended(mechanism):
        return None
    if not isinstance(mechanism.inner, GradientStep):
        return None
    match mechanism:
        case Noise():
            return liu.gradient_noise(network, records * mechanism.size)
        case Clipping():
            return liu.gradient_clipping(network, 1.0)
        case GradientDropout() | ActivationDropout():
            return liu.dropout(network, mechanism.rate)
    return None
