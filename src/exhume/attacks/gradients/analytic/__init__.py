"""Analytic attacks on gradients: they solve equations instead of optimising."""

from exhume.attacks.gradients.analytic.cocktail import Cocktail
from exhume.attacks.gradients.analytic.first_layer import FirstLayer
from exhume.attacks.gradients.analytic.imprint import Imprint
from exhume.attacks.gradients.analytic.label_inference import Labels, infer_labels
from exhume.attacks.gradients.analytic.sparsity import Sparsity

__all__ = ["Cocktail", "FirstLayer", "Imprint", "Labels", "Sparsity", "infer_labels"]
