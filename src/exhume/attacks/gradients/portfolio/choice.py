"""The run of one member, and the choice among members."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from exhume.attacks.gradients.portfolio.evidence import HeldOutEvidence
from exhume.metrics.matching import rms_apart
from exhume.protocol.arrays import FloatArray
from exhume.protocol.reconstruction import Reconstruction, Stat

TIED = 1.1
"""Candidates within this factor of the best objective are ranked by agreement."""


@dataclass(frozen=True, eq=False)
class MemberRun:
    """A member's result; ``evidence`` and ``records`` (n, *shape) are None without a candidate."""

    name: str
    found: Reconstruction
    evidence: HeldOutEvidence | None = None
    records: FloatArray | None = None

    def stats(self, others: Sequence[MemberRun]) -> dict[str, Stat]:
        """Return the statistics of this member under its own name."""
        found: dict[str, Stat] = {"status": self.found.status.name}
        if self.found.message:
            found["message"] = self.found.message
        if self.evidence is not None:
            found["objective"] = self.evidence.objective
            found["residual"] = self.evidence.residual
            apart = [apart_from(self, other) for other in others if other is not self]
            found["agreement"] = min((a for a in apart if a is not None), default=math.inf)
        finite = {k: v for k, v in found.items() if isinstance(v, str) or math.isfinite(v)}
        return {f"{self.name}.{key}": value for key, value in finite.items()}


def best_of(entries: Sequence[MemberRun]) -> MemberRun | None:
    """Return the strongest candidate by the adversary's own evidence, or None.

    An exact candidate wins. Otherwise the lowest objective wins. Among candidates about as low, the
    one closest to the others wins, and then the smoother image.
    """
    judged = [e for e in entries if e.evidence is not None and _finite(e)]
    if not judged:
        return None
    exact = [e for e in judged if e.evidence is not None and e.evidence.exact]
    if exact:
        return min(exact, key=_residual)
    lowest = min(_objective(e) for e in judged)
    tied = [e for e in judged if _objective(e) <= TIED * lowest]
    if len(tied) == 1:
        return tied[0]

    def order(entry: MemberRun) -> tuple[float, float]:
        apart = [apart_from(entry, other) for other in tied if other is not entry]
        mean = float(np.mean([a for a in apart if a is not None]))
        # The distance of two candidates is symmetric.
        assert entry.evidence is not None
        return round(mean, 9), entry.evidence.variation or 0.0

    return min(tied, key=order)


def apart_from(one: MemberRun, other: MemberRun) -> float | None:
    """Return the RMS difference of two candidate batches under the best pairing of records."""
    if one.records is None or other.records is None:
        return None
    return rms_apart(one.records, other.records)


def _finite(entry: MemberRun) -> bool:
    return math.isfinite(_objective(entry))


def _objective(entry: MemberRun) -> float:
    assert entry.evidence is not None
    return entry.evidence.objective


def _residual(entry: MemberRun) -> float:
    assert entry.evidence is not None
    return entry.evidence.residual


def fuller(first: MemberRun, again: MemberRun) -> MemberRun:
    """Return a member's second run, or its first if the second explains the release worse."""
    if first.evidence is None or again.evidence is None:
        return first
    whole = [e.distance + (e.statistics or 0.0) for e in (first.evidence, again.evidence)]
    return again if whole[1] <= whole[0] else first
