"""Numbers behind the figures: success against closeness, errors, and errors against estimates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from exhume.arrays import FloatArray
from exhume.audit.record import Record
from exhume.audit.summary import ran
from exhume.metrics import clopper_pearson

CLOSEST, FARTHEST = 0.02, 2.0
"""The axis of every closeness figure, so that settings can be compared."""
_POINTS = 97
_SMALLEST = 1e-17
"""Where an error of exactly zero is drawn on a logarithmic axis."""


@dataclass(frozen=True, eq=False)
class Curve:
    """Success rates with a pointwise Clopper–Pearson band; all arrays of one length."""

    closeness: FloatArray
    rate: FloatArray
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True, eq=False)
class Errors:
    """The distances of one attack on the targets where it ran and left a candidate."""

    attack: str
    baseline: bool
    distances: FloatArray


@dataclass(frozen=True, eq=False)
class Calibration:
    """An attack's own error estimates beside the true errors, both in the record's units."""

    attack: str
    estimates: FloatArray
    errors: FloatArray


def closeness_grid(asked: float) -> FloatArray:
    """Return the points of the axis, the closeness that was asked for among them."""
    grid = np.geomspace(CLOSEST, FARTHEST, _POINTS)
    inside = CLOSEST <= asked <= FARTHEST
    return np.unique(np.append(grid, asked)) if inside else grid


def success_curve(records: Sequence[Record], *, asked: float, confidence: float) -> Curve | None:
    """Return the success of one attack at every closeness, over the targets it really ran on.

    Closeness is the distance over that to the nearest record the adversary had. A trial without
    a candidate is a failure everywhere.
    """
    judged = [r for r in records if ran(r) and r.threshold is not None]
    if not judged:
        return None
    ratios = np.array([_ratio(r, asked) for r in judged])
    at = closeness_grid(asked)
    counts = np.searchsorted(np.sort(ratios), at, side="right")
    limits = {int(k): clopper_pearson(int(k), len(ratios), confidence=confidence) for k in counts}
    return Curve(
        at,
        counts / len(ratios),
        np.array([limits[int(k)].low for k in counts]),
        np.array([limits[int(k)].high for k in counts]),
    )


def errors(attack: str, records: Sequence[Record]) -> Errors | None:
    """Return the distances of one attack, or None where it left no candidate to measure."""
    found = [r.distance for r in records if ran(r) and r.distance is not None]
    if not found:
        return None
    return Errors(attack, records[0].baseline, np.maximum(found, _SMALLEST))


def calibration(
    attack: str, records: Sequence[Record], true: Sequence[float | None]
) -> Calibration | None:
    """Pair an attack's estimates with the true errors where both are known."""
    pairs = [
        (r.error_estimate, error)
        for r, error in zip(records, true, strict=True)
        if r.error_estimate is not None
        and error is not None
        and np.isfinite([r.error_estimate, error]).all()
    ]
    if not pairs:
        return None
    estimates, found = np.maximum(np.array(pairs, dtype=np.float64).T, _SMALLEST)
    return Calibration(attack, estimates, found)


def _ratio(record: Record, asked: float) -> float:
    """Distance over the nearest record's; rounding must not undo the success on record."""
    assert record.threshold is not None
    if record.distance is None:
        return np.inf
    if record.threshold == 0.0:
        return 0.0 if record.success else np.inf
    ratio = asked * record.distance / record.threshold
    return min(ratio, asked) if record.success else max(ratio, np.nextafter(asked, np.inf))
