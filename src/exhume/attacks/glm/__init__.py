"""The closed-form attack on generalised linear models, one part of it a file."""

from exhume.attacks.glm.attack import GLM

__all__ = ["GLM"]
