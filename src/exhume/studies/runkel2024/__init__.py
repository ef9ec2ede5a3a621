"""Runkel et al. 2024, *Training Data Reconstruction: Privacy due to Uncertainty?*."""

from exhume.studies.base import Part
from exhume.studies.runkel2024.authenticity import AUTHENTICITY
from exhume.studies.runkel2024.decoreco import DECORECO
from exhume.studies.runkel2024.initialisation import INITIALISATION
from exhume.studies.runkel2024.landscape import LANDSCAPE

TITLE = "Runkel et al. 2024: Training Data Reconstruction: Privacy due to Uncertainty?"

PARTS: tuple[Part, ...] = (INITIALISATION, DECORECO, LANDSCAPE, AUTHENTICITY)
