"""Derivatives of networks: activations with their slopes, losses, and products along a training.

Everything that differentiates by hand is here, so that attacks, bounds and training engines share
one set of formulas.
"""
