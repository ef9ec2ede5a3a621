"""Balle, Cherubin, Hayes 2022: Reconstructing Training Data with Informed Adversaries."""

from exhume.studies.balle2022 import adversary, feasibility, private, released
from exhume.studies.balle2022.common import InformedPart

TITLE = "Balle, Cherubin, Hayes 2022: Reconstructing Training Data with Informed Adversaries"

PARTS: tuple[InformedPart, ...] = (
    *(feasibility.GLM, feasibility.DEFAULT, feasibility.DEFAULT_CIFAR, feasibility.ORACLE),
    *(feasibility.METRICS, released.SEEDS, adversary.SHADOWS, adversary.TRANSFER),
    *(released.WIDTH, released.FIXED_SIZE, released.EPOCHS, released.OPTIMISERS),
    *(adversary.BLACK_BOX, adversary.OOD, released.FACTORS, released.FACTORS_CIFAR),
    *(released.WARM_START, feasibility.EASY_HARD, feasibility.GRADIENT_NORM),
    *(released.DEAD_GRADIENTS, adversary.INIT, adversary.MINIBATCH),
    *(private.DP, private.DP_CIFAR, private.RERO),
)
