"""Is it real? Candidates beside what they might be, and a verdict with its error rate."""

from exhume.authenticity.claims import claims
from exhume.authenticity.evidence import Evidence, gather
from exhume.authenticity.judge import Calibration, Judge, calibrate, learn
from exhume.authenticity.multipliers import Fit, fitted
from exhume.authenticity.neighbours import Comparison, Nearest, compare

__all__ = [
    "Calibration",
    "Comparison",
    "Evidence",
    "Fit",
    "Judge",
    "Nearest",
    "calibrate",
    "claims",
    "compare",
    "fitted",
    "gather",
    "learn",
]
