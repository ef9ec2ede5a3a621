"""Liu, Wang, Chen, Lei 2024: Data Reconstruction Attacks and Defenses."""

from exhume.studies.liu2024.attacks import ABLATION, ATTACKS
from exhume.studies.liu2024.bounds import BOUNDS
from exhume.studies.liu2024.common import GradientPart
from exhume.studies.liu2024.defences import DEFENDED, UTILITY
from exhume.studies.liu2024.two_layer import FEATURES

TITLE = "Liu, Wang, Chen, Lei 2024: Data Reconstruction Attacks and Defenses"

PARTS: tuple[GradientPart, ...] = (BOUNDS, FEATURES, ATTACKS, DEFENDED, UTILITY, ABLATION)
