"""Attacks on linear models and scalers: they solve the optimality condition for one record."""

from exhume.attacks.linear.glm import GLM
from exhume.attacks.linear.scaler import ScalerMoments

__all__ = ["GLM", "ScalerMoments"]
