"""Runkel et al. 2024, *Training Data Reconstruction: Privacy due to Uncertainty?*."""

from exhume.studies.base import Part
from exhume.studies.runkel2024 import real, starts

TITLE = "Runkel et al. 2024: Training Data Reconstruction: Privacy due to Uncertainty?"

PARTS: tuple[Part, ...] = (
    starts.INITIALISATION,
    starts.DECORECO,
    starts.LANDSCAPE,
    real.AUTHENTICITY,
)
