"""Runkel et al. 2024, *Training Data Reconstruction: Privacy due to Uncertainty?*."""

from exhume.studies.runkel2024.authenticity import AUTHENTICITY
from exhume.studies.runkel2024.common import WeightsPart
from exhume.studies.runkel2024.landscape import LANDSCAPE
from exhume.studies.runkel2024.starts import DECORECO, INITIALISATION

TITLE = "Runkel et al. 2024: Training Data Reconstruction: Privacy due to Uncertainty?"

PARTS: tuple[WeightsPart, ...] = (INITIALISATION, DECORECO, LANDSCAPE, AUTHENTICITY)
