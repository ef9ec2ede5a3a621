"""Defences: mechanisms around mechanisms."""

from exhume.defences.base import Blurring, Defence, undefended
from exhume.defences.noise import Noise
from exhume.defences.output_perturbation import OutputPerturbation
from exhume.defences.rounding import Rounding

__all__ = ["Blurring", "Defence", "Noise", "OutputPerturbation", "Rounding", "undefended"]
