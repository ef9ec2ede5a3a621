"""Attacks on gradients that solve instead of optimise."""

from exhume.attacks.analytic.cocktail import Cocktail
from exhume.attacks.analytic.first_layer import FirstLayer
from exhume.attacks.analytic.imprint import Imprint
from exhume.attacks.analytic.labels import Labels, infer_labels
from exhume.attacks.analytic.sparsity import Sparsity

__all__ = ["Cocktail", "FirstLayer", "Imprint", "Labels", "Sparsity", "infer_labels"]
