"""Defences: mechanisms that wrap other mechanisms."""

from exhume.defences.activation_dropout import ActivationDropout
from exhume.defences.clipping import Clipping
from exhume.defences.dp_sgd import DPSGD
from exhume.defences.gradient_dropout import GradientDropout
from exhume.defences.local_steps import SeveralLocalSteps
from exhume.defences.mixup import MixUp
from exhume.defences.noise import Noise
from exhume.defences.output_perturbation import OutputPerturbation
from exhume.defences.pruning import Pruning
from exhume.defences.quantised import Quantised
from exhume.defences.record_clipping import RecordClipping
from exhume.defences.rounding import Rounding
from exhume.defences.rounds import Rounds
from exhume.defences.secure_aggregation import SecureAggregation
from exhume.defences.sign import Sign
from exhume.defences.step_defence import StepDefence
from exhume.defences.top_k import TopK
from exhume.protocol.defence import Blurring, Defence, ListedDefence, Place, Transform, undefended

__all__ = [
    "DPSGD",
    "ActivationDropout",
    "Blurring",
    "Clipping",
    "Defence",
    "GradientDropout",
    "ListedDefence",
    "MixUp",
    "Noise",
    "OutputPerturbation",
    "Place",
    "Pruning",
    "Quantised",
    "RecordClipping",
    "Rounding",
    "Rounds",
    "SecureAggregation",
    "SeveralLocalSteps",
    "Sign",
    "StepDefence",
    "TopK",
    "Transform",
    "undefended",
]
