"""Balle, Cherubin, Hayes 2022: Reconstructing Training Data with Informed Adversaries."""

from exhume.studies.balle2022 import (
    convex,
    factors,
    feasibility,
    learning,
    private,
    randomness,
    released,
    targets,
)
from exhume.studies.base import Part

TITLE = "Balle, Cherubin, Hayes 2022: Reconstructing Training Data with Informed Adversaries"

PARTS: tuple[Part, ...] = (
    convex.GLM,
    *feasibility.PARTS,
    *learning.PARTS,
    *released.PARTS,
    *factors.PARTS,
    *targets.PARTS,
    *randomness.PARTS,
    *private.PARTS,
)
