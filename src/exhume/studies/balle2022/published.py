"""The figures of Balle et al. 2022, as printed."""

from __future__ import annotations

MNIST_ERROR, CIFAR_ERROR = 0.0089, 0.0049
"""Mean squared errors of the default attack, section VI-A."""
ANSWERS_ERROR = 0.0110
"""That of answers instead of weights on MNIST, section VI-C."""
SECOND_LAYER_ERROR = 0.0124
"""That of the second layer alone on MNIST, Table IV."""
RELU_ERROR = 0.0324
"""That of ReLU on CIFAR-10, appendix M."""
NEAREST = {"mnist": 0.0232, "cifar-10": 0.0291}
"""Mean squared errors of the nearest known record, section V-B d."""
LARGEST_POOL = {"mnist": 0.0241, "cifar-10": 0.0310}
"""The same in the largest pool there is, all 70,000 images of MNIST and 21,000 of CIFAR-10.

Measured by ``exhume study balle2022 oracle --scale laptop``, part ``oracle`` of the page.
"""
WIDTHS = {1: 0.0079, 10: 0.0089, 100: 0.0079}
"""Table IV: mean squared error by width."""
FIXED_SETS = {1000: 0.0094, 10_000: 0.0089}
"""Appendix H: mean squared error by size of the fixed set."""
TABLE_II = {
    "default": (0.0089, 0.0049),
    "another fixed set": (0.0094, 0.0039),
    "larger network": (0.0079, 0.0047),
    "some layers": (0.0124, 0.0257),
    "more epochs": (0.0121, 0.0094),
    "ReLU": (0.0182, 0.0324),
    "smaller learning rate": (0.0049, 0.0055),
    "random initialisation": (0.0695, 0.0931),
    "black box": (0.0110, 0.0198),
}
"""Mean squared errors on MNIST and on CIFAR-10."""
TABLE_III = {
    (0.01, 0.0): (0.0041, 0.0693),
    (0.01, 0.9): (0.0049, 0.0691),
    (0.2, 0.0): (0.0063, 0.0692),
    (0.2, 0.9): (0.0089, 0.0695),
}
"""(learning rate, momentum): error with known and with random initial parameters."""
TABLE_IX = {
    ("sgd", 1000, 100): (0.0041, 0.61),
    ("sgd", 1000, 250): (0.0126, 0.80),
    ("adam", 1000, 100): (0.0052, 0.87),
    ("adam", 1000, 250): (0.0065, 0.92),
    ("sgd", 5000, 100): (0.0049, 0.51),
    ("sgd", 5000, 250): (0.0201, 0.60),
    ("adam", 5000, 100): (0.0052, 0.63),
    ("adam", 5000, 250): (0.0062, 0.75),
}
"""(optimiser, fixed set, epochs): (mean squared error, membership AUC)."""
