"""Whether candidates are real: evidence for each, and a verdict with its error rate."""

from exhume.attacks.weights_only.authenticity.evidence import AuthenticityEvidence, claims, gather
from exhume.attacks.weights_only.authenticity.judge import (
    AuthenticityJudge,
    AuthenticityVerdict,
    Calibration,
    calibrate,
    in_turn,
    learn,
)
from exhume.attacks.weights_only.authenticity.multipliers import MultiplierFit, fitted
from exhume.metrics.nearest_records import Comparison, NearestRecord, compare
from exhume.stats.roc import Grouped, joined

__all__ = [
    "AuthenticityEvidence",
    "AuthenticityJudge",
    "AuthenticityVerdict",
    "Calibration",
    "Comparison",
    "Grouped",
    "MultiplierFit",
    "NearestRecord",
    "calibrate",
    "claims",
    "compare",
    "fitted",
    "gather",
    "in_turn",
    "joined",
    "learn",
]
