"""From an unmixing to an answer: records, labels, and the confidence in each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from exhume.attacks.gradients.analytic.factorisation import Consistency, Factors, Returned
from exhume.attacks.gradients.analytic.read_gradient import FirstLayerGradient
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.attack import nothing
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Stat, Status

_STRUCTURE = 100.0
"""A singular value beyond the batch size is significant above this multiple of the noise."""

CREDIBLE = 0.05
"""Largest credible sine of the angle between a record's errors and its column of Δ."""


def too_many(observed: FirstLayerGradient) -> str | None:
    """Return why the layer can't separate this many records, or None."""
    room = min(observed.weight.shape)
    if observed.count == 1 or observed.count < room:
        return None
    return (
        f"{observed.count} unknown records are too many: the first layer "
        f"{observed.weight.shape} separates at most {room - 1}"
    )


def contradiction(observed: FirstLayerGradient, factors: Factors) -> Reconstruction | None:
    """Return the answer for a gradient that this number of records can't give, or None."""
    knowledge = observed.knowledge
    if not np.any(observed.weight):
        message = "the first layer's gradient is zero: no error reached it"
        return nothing(knowledge, Status.NO_INFORMATION, message)
    if factors.excess > _STRUCTURE:
        message = (
            f"the first layer's gradient has more directions than {observed.count} records make "
            f"(singular value {observed.count + 1} is {factors.excess:.0f} times the noise)"
        )
        return nothing(knowledge, Status.WRONG_ASSUMPTION, message)
    if factors.rank:
        return None
    message = "no direction of the first layer's gradient exceeds its noise"
    status = Status.NO_INFORMATION if observed.defended else Status.WRONG_ASSUMPTION
    return nothing(knowledge, status, message)


def out_of_range(records: FloatArray, knowledge: Knowledge) -> str | None:
    """Return a message if rebuilt records (n, *record shape) exceed the known range, or None.

    This is the case if, in each record, more than one entry in fifty lies outside by a tenth of the
    range. Then the inputs were normalised, (x − mean) / deviation, or have another range.
    """
    if knowledge.value_range is None or not len(records):
        return None
    low, high = knowledge.value_range
    slack = 0.1 * (high - low)
    beyond = (records < low - slack) | (records > high + slack)
    if not (beyond.reshape(len(records), -1).mean(axis=1) > 0.02).all():
        return None
    return (
        f"the inputs lie between {records.min():.3g} and {records.max():.3g}, not within "
        f"[{low:g}, {high:g}] as assumed: they were normalised, and are shown rescaled to it"
    )


def stretched(records: FloatArray, knowledge: Knowledge) -> FloatArray:
    """Return records of an unknown range stretched to the known one, all by the same map."""
    assert knowledge.value_range is not None
    low, high = knowledge.value_range
    least, most = float(records.min()), float(records.max())
    return low + (high - low) * (records - least) / max(most - least, 1e-300)


def _normalised(
    observed: FirstLayerGradient, against: Consistency, unmixing: FloatArray
) -> Reconstruction | None:
    """Return records that reproduce the gradient only outside the known range, or None."""
    free = replace(against, knowledge=replace(against.knowledge, value_range=None))
    records = free.records(unmixing)
    message = out_of_range(records, against.knowledge)
    if message is None or len(records) < observed.count:
        return None
    returned = free.returned(unmixing)
    if not (returned.residual < CREDIBLE).all():
        return None
    classes = observed.step.classes
    return Reconstruction(
        stretched(records, against.knowledge),
        Status.WRONG_ASSUMPTION,
        labels=None if classes is None else np.asarray(classes)[returned.labels],
        message=message,
        stats={"lowest": float(records.min()), "highest": float(records.max())},
    )


def answer(
    observed: FirstLayerGradient,
    against: Consistency,
    unmixing: FloatArray,
    proved: Array,
    stats: dict[str, Stat],
) -> Reconstruction:
    """Return the records of an unmixing (rank, rank), the most trusted first.

    The error estimate has two parts: the distance the records move when they are solved once more
    from their own errors, and the effect of the noise.
    """
    unmixing = against.normalised(unmixing)
    elsewhere = _normalised(observed, against, unmixing)
    if elsewhere is not None:
        return elsewhere
    returned = against.returned(unmixing)
    # A record that does not return the errors of its column disproves that column.
    proved = proved & (returned.residual < CREDIBLE)
    samples, error = against.records(unmixing), _errors(against, unmixing, returned)
    width = _width(samples, against.knowledge)
    confidence = 1.0 / (1.0 + (error / (0.05 * width)) ** 2)
    confidence = np.where(proved, confidence, 0.5 * confidence)
    order = np.argsort(-confidence, kind="stable")
    sure = bool(proved.all()) and bool((error < 0.05 * width).all())
    missing = observed.count - len(samples)
    classes = observed.step.classes
    return Reconstruction(
        samples[order],
        Status.CONVERGED if sure and not missing else Status.APPROXIMATE,
        labels=None if classes is None else np.asarray(classes)[returned.labels[order]],
        confidence=confidence[order],
        error_estimate=error[order],
        message=_message(observed, len(samples), int(np.sum(proved)), float(np.median(error))),
        stats={
            "rank": len(samples),
            "proved": int(np.sum(proved)),
            "gap": against.factors.gap,
            "noise": against.factors.noise,
            "residual": float(np.median(returned.residual)),
            **stats,
        },
    )


def _errors(against: Consistency, unmixing: FloatArray, returned: Returned) -> FloatArray:
    factors = against.factors
    again = against.normalised(np.linalg.lstsq(returned.directions, factors.left, rcond=1e-12)[0])
    with np.errstate(over="ignore", invalid="ignore"):
        moved = factors.inputs(again) - factors.inputs(unmixing)
        change = np.sqrt(np.mean((moved / against.layer.scale) ** 2, axis=1))
        blur = factors.noise * np.linalg.norm(unmixing, axis=1)
    blur *= np.sqrt(np.mean(1.0 / against.layer.scale**2))
    return np.asarray(np.nan_to_num(3.0 * (change + blur), nan=np.inf, posinf=np.inf))


def _width(samples: FloatArray, knowledge: Knowledge) -> float:
    if knowledge.value_range is not None:
        return knowledge.value_range[1] - knowledge.value_range[0]
    return max(float(np.std(samples)), 1e-300)


def _message(observed: FirstLayerGradient, found: int, proved: int, error: float) -> str:
    parts = [f"{proved} of {observed.count} records proved, median error estimate {error:.1e}"]
    if found < observed.count:
        parts.append(
            f"the gradient has only {found} directions: some records are copies or have no gradient"
        )
    return "; ".join(parts)
