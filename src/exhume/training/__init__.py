"""Training algorithms: the mechanisms that turn records into a model."""

from exhume.training.answers import Answers
from exhume.training.families import Family
from exhume.training.glm import GLM, Solver
from exhume.training.penalty import Penalty

__all__ = ["GLM", "Answers", "Family", "Penalty", "Solver"]
