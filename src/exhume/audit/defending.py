"""Defences as a configuration lists them, put around a mechanism in order."""

from __future__ import annotations

from collections.abc import Sequence

from exhume import defences
from exhume.config import DefenceTable
from exhume.config.defences import (
    ActivationDropoutTable,
    DPSGDTable,
    GradientClippingTable,
    GradientDropoutTable,
    LocalStepsTable,
    MixUpTable,
    NoiseTable,
    OutputPerturbationTable,
    PruningTable,
    QuantisedTable,
    RecordClippingTable,
    RoundingTable,
    RoundsTable,
    SecureAggregationTable,
    SignTable,
    TopKTable,
)
from exhume.errors import InputError
from exhume.mechanism import Mechanism
from exhume.training import SGD
from exhume.training.gradient import Aggregate, LocalSteps, Step, gradient_step

INSIDE = (RecordClippingTable, DPSGDTable, MixUpTable, ActivationDropoutTable, LocalStepsTable)
"""Defences that go around a gradient step itself."""
_SENT = (RoundingTable, OutputPerturbationTable, NoiseTable)
"""Defences that are not for gradients alone."""


def defended(mechanism: Mechanism, tables: Sequence[DefenceTable], records: int) -> Mechanism:
    """Return the mechanism with the defences around it, the first one innermost.

    ``records`` is how many a release is about: local steps deal them out.
    """
    for table in tables:
        if not isinstance(table, _SENT) and gradient_step(mechanism) is None:
            raise InputError(
                f"the defence {table.name!r} is for gradients and updates; "
                "weights and answers take output-perturbation, noise and rounding"
            )
        if isinstance(table, INSIDE):
            if not isinstance(mechanism, Step):
                raise InputError(
                    f"the defence {table.name!r} changes a gradient step itself: it comes before "
                    "those that change what is sent"
                )
            mechanism = _inside(mechanism, table, records)
        else:
            mechanism = _around(mechanism, table)
    return mechanism


def _inside(step: Step, table: DefenceTable, records: int) -> Mechanism:
    match table:
        case RecordClippingTable():
            return defences.RecordClipping(step, table.norm)
        case DPSGDTable():
            return defences.DPSGD(step, table.norm, table.noise_multiplier)
        case MixUpTable():
            return defences.MixUp(step, table.alpha)
        case ActivationDropoutTable():
            return defences.ActivationDropout(step, table.rate)
    assert isinstance(table, LocalStepsTable)
    return _local(step, table, records)


def _local(step: Step, table: LocalStepsTable, records: int) -> LocalSteps:
    """Take every step on all records, or on parts of them that differ."""
    from exhume.training import Batches

    optimiser = SGD(table.learning_rate)
    if not table.different:
        return LocalSteps(step, optimiser, table.steps)
    if records % table.steps:
        raise InputError(
            f"{records} records can't be dealt evenly to {table.steps} local steps: take a "
            "batch_size that they divide"
        )
    return LocalSteps(step, optimiser, 1, Batches(records // table.steps, seed=0))


def _around(mechanism: Mechanism, table: DefenceTable) -> Mechanism:
    match table:
        case OutputPerturbationTable():
            return defences.OutputPerturbation(mechanism, table.noise_multiplier, table.norm_bound)
        case NoiseTable():
            return defences.Noise(mechanism, table.size)
        case RoundingTable():
            return defences.Rounding(mechanism, table.decimals)
        case GradientClippingTable():
            return defences.Clipping(mechanism, table.norm)
        case PruningTable():
            return defences.Pruning(mechanism, table.share, table.scope)
        case TopKTable():
            return defences.TopK(mechanism, table.count)
        case GradientDropoutTable():
            return defences.GradientDropout(mechanism, table.rate)
        case SignTable():
            return defences.Sign(mechanism)
        case QuantisedTable():
            return defences.Quantised(mechanism, table.bits, table.stochastic)
        case SecureAggregationTable():
            return Aggregate(mechanism, table.clients)
    assert isinstance(table, RoundsTable)
    return defences.Rounds(mechanism, table.rounds)
