"""Defences: mechanisms around mechanisms."""

from exhume.defences.base import Blurring, Defence, Transform, undefended
from exhume.defences.clipping import DPSGD, Clipping, RecordClipping
from exhume.defences.coarse import Quantised, Sign
from exhume.defences.inside import ActivationDropout, MixUp, StepDefence
from exhume.defences.noise import Noise
from exhume.defences.output_perturbation import OutputPerturbation
from exhume.defences.rounding import Rounding
from exhume.defences.rounds import Rounds
from exhume.defences.sparse import GradientDropout, Pruning, TopK

__all__ = [
    "DPSGD",
    "ActivationDropout",
    "Blurring",
    "Clipping",
    "Defence",
    "GradientDropout",
    "MixUp",
    "Noise",
    "OutputPerturbation",
    "Pruning",
    "Quantised",
    "RecordClipping",
    "Rounding",
    "Rounds",
    "Sign",
    "StepDefence",
    "TopK",
    "Transform",
    "undefended",
]
