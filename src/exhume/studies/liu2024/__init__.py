"""Liu, Wang, Chen, Lei 2024: Data Reconstruction Attacks and Defenses."""

from exhume.studies.base import Part
from exhume.studies.liu2024 import ablation, attacks, bounds, defences, two_layer, utility

TITLE = "Liu, Wang, Chen, Lei 2024: Data Reconstruction Attacks and Defenses"

PARTS: tuple[Part, ...] = (
    bounds.BOUNDS,
    two_layer.FEATURES,
    attacks.ATTACKS,
    defences.PART,
    utility.UTILITY,
    ablation.ABLATION,
)
