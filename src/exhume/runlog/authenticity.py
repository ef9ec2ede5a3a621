"""Whether an attack's candidates are real, in the log of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LEVEL = 0.9
"""A candidate is real if no held-out record is nearer, and correlates this much with its own."""
ALLOWED = 0.1
"""The share of inventions that may be judged real."""


@dataclass(frozen=True)
class RocCurve:
    """An ROC curve with its area, and the pictures recognised at the threshold.

    ``alarms`` is the false-positive rate there, ``alarms_high`` its upper limit at 95 % confidence.
    """

    area: float | None
    low: float
    high: float
    recognised: int
    pictures: int
    others: int
    networks: int
    alarms: float | None
    alarms_high: float
    false_rate: tuple[float, ...] = ()
    true_rate: tuple[float, ...] = ()
    said: str = ""


@dataclass(frozen=True)
class Beside:
    """The nearest record to a candidate: its place, and how near it is."""

    index: int
    distance: float
    ncc: float
    ssim: float | None


@dataclass(frozen=True)
class JudgedCandidate:
    """One candidate: its verdict, and its nearest records if they are known.

    ``false_positives`` is the share of inventions with such a score, with its 95 % interval;
    ``starts`` the correlation with the result of another start of the attack.
    """

    release: int
    place: int
    verdict: str
    score: float | None
    false_positives: tuple[float, float, float] | None
    agreement: float
    starts: float
    real: bool | None = None
    rank: int | None = None
    training: Beside | None = None
    held_out: Beside | None = None
    starting: Beside | None = None


@dataclass(frozen=True)
class Authenticity:
    """The result of an audit on whether an attack's candidates are real.

    ``claimed`` was measured on the adversary's own networks, ``measured`` on the releases with the
    truth; ``held_out`` and ``without`` are about given pictures instead of candidates, compared
    with held-out pictures and with networks trained without them. ``objective`` is a release's
    stationarity residual at the candidates and at the truth. ``counts`` are candidates by verdict,
    ``right`` those whose verdict is true.
    """

    said: str
    tells: bool = False
    attack: str = ""
    networks: int = 0
    judge: str = ""
    level: float = LEVEL
    allowed: float = ALLOWED
    counts: Mapping[str, int] | None = None
    right: Mapping[str, int] | None = None
    claimed: RocCurve | None = None
    measured: RocCurve | None = None
    held_out: RocCurve | None = None
    without: RocCurve | None = None
    objective: tuple[tuple[float | None, float | None], ...] = ()
    candidates: tuple[JudgedCandidate, ...] = ()
    artefacts: tuple[str, ...] = ()

    def brief(self) -> str:
        """Return a short summary of the verdicts."""
        if not self.tells or self.counts is None:
            return "whether its candidates are real is undecided"
        known = "" if self.right is None else " ({} correct)"
        real, invented = (
            (self.counts[name], known.format((self.right or {}).get(name)))
            for name in ("real", "invented")
        )
        return (
            f"{sum(self.counts.values())} candidates: {real[0]} real{real[1]}, {invented[0]} "
            f"invented{invented[1]}"
        )
