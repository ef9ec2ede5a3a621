"""Informed membership inference: tell which of two records was trained on.

Balle et al. 2022, §II-D and Algorithm 2. The adversary has every other training record, the
training algorithm and the candidates; only one bit is secret.
"""

from exhume.membership.base import Judge, MembershipAttack, Verdict
from exhume.membership.by_reconstruction import ByReconstruction
from exhume.membership.candidates import Against, Candidates
from exhume.membership.ceiling import PowerCeiling, power_ceiling
from exhume.membership.game import membership_game
from exhume.membership.loss import LossThreshold
from exhume.membership.result import MembershipResult, OperatingPoint
from exhume.membership.retraining import Retraining
from exhume.membership.shadows import NearestMean, ShadowModels

__all__ = [
    "Against",
    "ByReconstruction",
    "Candidates",
    "Judge",
    "LossThreshold",
    "MembershipAttack",
    "MembershipResult",
    "NearestMean",
    "OperatingPoint",
    "PowerCeiling",
    "Retraining",
    "ShadowModels",
    "Verdict",
    "membership_game",
    "power_ceiling",
]
