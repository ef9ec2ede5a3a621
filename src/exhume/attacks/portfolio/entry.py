"""One member's run, and the choice among them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from exhume.arrays import FloatArray
from exhume.attacks.portfolio.evidence import Evidence
from exhume.reconstruction import Reconstruction, Stat

TIED = 1.1
"""Candidates whose evidence is within this factor of the best are told apart by agreement."""


@dataclass(frozen=True, eq=False)
class Entry:
    """What a member returned; ``evidence`` and ``records`` (n, *shape) None where it has none."""

    name: str
    found: Reconstruction
    evidence: Evidence | None = None
    records: FloatArray | None = None

    def stats(self, others: Sequence[Entry]) -> dict[str, Stat]:
        """Return the figures of this member under its own name."""
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


def best_of(entries: Sequence[Entry]) -> Entry | None:
    """Return the strongest candidate by the adversary's own evidence, None where there is none.

    An exact one first. Then the lowest objective; among those that are about as low, the one that
    the others agree with most; at last the smoother image.
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

    def order(entry: Entry) -> tuple[float, float]:
        apart = [apart_from(entry, other) for other in tied if other is not entry]
        mean = float(np.mean([a for a in apart if a is not None]))
        # Two candidates are as far from each other as the other way round.
        assert entry.evidence is not None
        return round(mean, 9), entry.evidence.variation or 0.0

    return min(tied, key=order)


def apart_from(one: Entry, other: Entry) -> float | None:
    """Return the RMS difference of two candidate batches, records paired up as they fit best."""
    if one.records is None or other.records is None:
        return None
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist

    first, second = (r.reshape(len(r), -1) for r in (one.records, other.records))
    costs = cdist(first, second, "sqeuclidean") / first.shape[1]
    rows, columns = linear_sum_assignment(costs)
    return float(np.sqrt(costs[rows, columns].mean()))


def _finite(entry: Entry) -> bool:
    return math.isfinite(_objective(entry))


def _objective(entry: Entry) -> float:
    assert entry.evidence is not None
    return entry.evidence.objective


def _residual(entry: Entry) -> float:
    assert entry.evidence is not None
    return entry.evidence.residual


def fuller(first: Entry, again: Entry) -> Entry:
    """Return a member's second run, or its first where the second explains the release worse."""
    if first.evidence is None or again.evidence is None:
        return first
    whole = [e.distance + (e.statistics or 0.0) for e in (first.evidence, again.evidence)]
    return again if whole[1] <= whole[0] else first
