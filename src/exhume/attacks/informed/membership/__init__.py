"""Informed membership inference: decide which of two records was trained on.

Balle et al. 2022, §II-D and Algorithm 2. The adversary knows every other training record, the
training algorithm and the candidates; only one bit is secret.
"""

from exhume.attacks.informed.membership.base import (
    MembershipAttack,
    MembershipJudge,
    MembershipQuestion,
    MembershipVerdict,
)
from exhume.attacks.informed.membership.by_reconstruction import ByReconstruction
from exhume.attacks.informed.membership.game import membership_game
from exhume.attacks.informed.membership.loss_threshold import LossThreshold
from exhume.attacks.informed.membership.result import MembershipResult, OperatingPoint
from exhume.attacks.informed.membership.retraining import Retraining
from exhume.attacks.informed.membership.shadow_models import NearestMean, ShadowModels, ShadowTest
from exhume.bounds.membership import Against, PowerCeiling, power_ceiling

__all__ = [
    "Against",
    "ByReconstruction",
    "LossThreshold",
    "MembershipAttack",
    "MembershipJudge",
    "MembershipQuestion",
    "MembershipResult",
    "MembershipVerdict",
    "NearestMean",
    "OperatingPoint",
    "PowerCeiling",
    "Retraining",
    "ShadowModels",
    "ShadowTest",
    "membership_game",
    "power_ceiling",
]
