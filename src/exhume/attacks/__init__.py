"""Attacks: one file (or folder) a method."""

from exhume.attacks.base import Attack
from exhume.attacks.baseline import Oblivious
from exhume.attacks.conditional import ConditionalGuess
from exhume.attacks.glm import GLM
from exhume.attacks.reconstructor import Reconstructor
from exhume.attacks.ridge import Ridge
from exhume.attacks.scaler import ScalerMoments

__all__ = [
    "GLM",
    "Attack",
    "ConditionalGuess",
    "Oblivious",
    "Reconstructor",
    "Ridge",
    "ScalerMoments",
]
