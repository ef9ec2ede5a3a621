"""Is it real? Candidates beside what they might be, and a verdict with its error rate."""

from exhume.authenticity.calibration import Calibration, Verdict, calibrate
from exhume.authenticity.claims import claims
from exhume.authenticity.evidence import Evidence, gather
from exhume.authenticity.grouped import Grouped, joined
from exhume.authenticity.judge import Judge, in_turn, learn
from exhume.authenticity.multipliers import Fit, fitted
from exhume.authenticity.neighbours import Comparison, Nearest, compare

__all__ = [
    "Calibration",
    "Comparison",
    "Evidence",
    "Fit",
    "Grouped",
    "Judge",
    "Nearest",
    "Verdict",
    "calibrate",
    "claims",
    "compare",
    "fitted",
    "gather",
    "in_turn",
    "joined",
    "learn",
]
