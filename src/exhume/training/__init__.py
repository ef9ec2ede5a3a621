"""Training algorithms: the mechanisms that map records to a model."""

from exhume.training.answers import Answers
from exhume.training.augmentation import Augmentation
from exhume.training.batches import Batches, GivenBatches
from exhume.training.families import Family
from exhume.training.glm import GLM, Solver
from exhume.training.model import Model
from exhume.training.network import DPClipping, Training
from exhume.training.optimisers import SGD, Adam, RMSprop
from exhume.training.own_loop import Loop
from exhume.training.penalty import Penalty
from exhume.training.recorded import Recorded, RecordedElsewhere
from exhume.training.schedules import CosineDecay, OneCycle, RateSchedule, StepDecay, WarmUp

__all__ = [
    "GLM",
    "SGD",
    "Adam",
    "Answers",
    "Augmentation",
    "Batches",
    "CosineDecay",
    "DPClipping",
    "Family",
    "GivenBatches",
    "Loop",
    "Model",
    "OneCycle",
    "Penalty",
    "RMSprop",
    "RateSchedule",
    "Recorded",
    "RecordedElsewhere",
    "Solver",
    "StepDecay",
    "Training",
    "WarmUp",
]
