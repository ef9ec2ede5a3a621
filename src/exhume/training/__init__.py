"""Training algorithms: the mechanisms that turn records into a model."""

from exhume.training.answers import Answers
from exhume.training.batches import Batches
from exhume.training.families import Family
from exhume.training.glm import GLM, Solver
from exhume.training.model import Model
from exhume.training.network import Clipping, Training
from exhume.training.optimisers import SGD, Adam
from exhume.training.penalty import Penalty

__all__ = [
    "GLM",
    "SGD",
    "Adam",
    "Answers",
    "Batches",
    "Clipping",
    "Family",
    "Model",
    "Penalty",
    "Solver",
    "Training",
]
