"""A released StandardScaler reveals its last unknown record: n·mean − Σ of the others."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from exhume.attacks.linear.moments import KnownMoments
from exhume.attacks.linear.read_release import readable, scaler_of
from exhume.protocol.arrays import Array
from exhume.protocol.attack import GroupedAttack, Refusal, ThreatModel
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.records import Records
from exhume.protocol.release import Release, Weights


@dataclass(frozen=True, eq=False)
class ScalerProblem:
    """A released scaler, the other records that it was fitted to, and the noise on its mean."""

    scaler: Mapping[str, Array]
    others: Records
    blur: float
    record_shape: tuple[int, ...]


@dataclass(frozen=True)
class ScalerMoments(GroupedAttack[ScalerProblem]):
    """Rebuilds the record from the mean of a scaler that was fitted to a set with the record."""

    name: ClassVar[str] = "scaler-moments"
    made_for: ClassVar[ThreatModel | None] = ThreatModel.LINEAR_MODEL

    def parse(self, release: Release, knowledge: Knowledge) -> ScalerProblem | Refusal:
        """Say why there is no scaler to read."""
        if not isinstance(release, Weights) or "scaler.mean" not in release.parameters:
            return Refusal("the release holds no scaler's statistics")
        read = readable(release, knowledge)
        if isinstance(read, Refusal):
            return read
        scaler = scaler_of(release)
        reason = miscounted(scaler, read.fixed_set)
        if reason is not None:
            return Refusal(reason)
        deviation, shape = read.made.parameter_deviation, knowledge.record_shape
        return ScalerProblem(scaler, read.fixed_set, deviation, shape)

    def _group_key(self, problem: ScalerProblem) -> Hashable:
        return id(problem.others)

    def _solve_group(
        self, problems: Sequence[ScalerProblem], rngs: Sequence[np.random.Generator]
    ) -> list[Reconstruction]:
        known = KnownMoments.of(problems[0].others)
        return [_answered(problem, known) for problem in problems]


def _answered(problem: ScalerProblem, known: KnownMoments) -> Reconstruction:
    leak = known.leak(problem.scaler, blur=problem.blur)
    error = float(np.sqrt(np.mean(leak.deviation**2)))
    return Reconstruction(
        leak.x.reshape(1, *problem.record_shape),
        Status.CONVERGED if error <= 0.1 * known.spread else Status.APPROXIMATE,
        confidence=np.ones(1),
        error_estimate=np.array([error]),
        message=f"computed from the scaler's mean, own error estimate {error:.2g}",
    )


def miscounted(scaler: Mapping[str, Array], others: Records) -> str | None:
    """Return why the scaler's count contradicts the fixed set and one target, or None."""
    seen, expected = int(np.rint(scaler["scaler.count"])), len(others) + 1
    if seen == expected:
        return None
    return (
        f"the scaler saw {seen} records, the fixed set and the target are {expected}: "
        "it was not fitted with exactly the target added"
    )
