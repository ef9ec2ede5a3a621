"""A released StandardScaler gives its last unknown record away: n·mean − Σ of the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.attacks.base import Attack
from exhume.attacks.glm.reading import pipeline, scaler_of, unreadable
from exhume.knowledge import Knowledge
from exhume.reconstruction import Reconstruction, Status
from exhume.records import Records
from exhume.release import Release, Weights


@dataclass(frozen=True, eq=False)
class Leak:
    """A record read off a scaler: features (d,), and the deviation of each entry."""

    x: FloatArray
    deviation: FloatArray


def read_moments(scaler: Mapping[str, Array], others: Records, *, blur: float = 0.0) -> Leak:
    """Return the record that the scaler saw beside ``others``; ``blur`` is noise on the mean."""
    rows = np.asarray(others.x, dtype=np.float64).reshape(len(others), -1)
    mean, count = np.asarray(scaler["scaler.mean"], dtype=np.float64), float(scaler["scaler.count"])
    x = mean + np.sum(mean - rows, axis=0)
    unit = np.finfo(np.result_type(scaler["scaler.mean"], np.float16)).eps
    # A computed mean is off by a unit in its last place or so; the sum magnifies that n times.
    rounding = unit * np.abs(mean) * count
    summing = np.finfo(np.float64).eps * np.sqrt(np.sum((mean - rows) ** 2, axis=0))
    return Leak(x, np.sqrt(rounding**2 + summing**2 + (blur * count) ** 2))


@dataclass(frozen=True)
class ScalerMoments(Attack):
    """Rebuilds the record from the mean of a scaler that was fitted with the record in it."""

    name: ClassVar[str] = "scaler-moments"

    def accepts(self, release: Release, knowledge: Knowledge) -> str | None:
        """Say why there is no scaler to read."""
        if not isinstance(release, Weights) or "scaler.mean" not in release.parameters:
            return "the release holds no scaler's statistics"
        reason = unreadable(release, knowledge)
        if reason is None:
            reason = miscounted(scaler_of(release), knowledge)
        return reason

    def _reconstruct(
        self, release: Release, knowledge: Knowledge, rng: np.random.Generator
    ) -> Reconstruction:
        assert isinstance(release, Weights)
        assert knowledge.fixed_set is not None
        known = pipeline(knowledge.training, len(knowledge.fixed_set) + 1)
        blur = 0.0 if isinstance(known, str) else known.parameter_deviation
        leak = read_moments(scaler_of(release), knowledge.fixed_set, blur=blur)
        error = float(np.sqrt(np.mean(leak.deviation**2)))
        spread = float(np.std(np.asarray(knowledge.fixed_set.x, dtype=np.float64), axis=0).mean())
        status = Status.CONVERGED if error <= 0.1 * spread else Status.APPROXIMATE
        return Reconstruction(
            leak.x.reshape(1, *knowledge.record_shape),
            status,
            confidence=np.ones(1),
            error_estimate=np.array([error]),
            message=f"read off the scaler's mean, own error estimate {error:.1e}",
        )


def miscounted(scaler: Mapping[str, Array], knowledge: Knowledge) -> str | None:
    """Return why the scaler's count doesn't go with the fixed set and one target, or None."""
    assert knowledge.fixed_set is not None
    seen, expected = int(np.rint(scaler["scaler.count"])), len(knowledge.fixed_set) + 1
    if seen == expected:
        return None
    return (
        f"the scaler saw {seen} records, the fixed set and the target are {expected}: "
        "it was not fitted with exactly the target added"
    )
