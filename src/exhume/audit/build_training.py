"""A training as a configuration's table describes it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from exhume.config import KnowledgeTable, NetworkReleaseTable, ScheduleTable, TrainingTable
from exhume.models.initialise import Initialisation, Scheme
from exhume.training.model import Label

if TYPE_CHECKING:
    from exhume.models import Network
    from exhume.training import Batches, RateSchedule, Training
    from exhume.training.optimisers import Optimiser


def build_training(
    table: TrainingTable,
    knowledge: KnowledgeTable,
    release: NetworkReleaseTable,
    network: Network,
    classes: tuple[Label, ...] | None,
    seed: int,
) -> Training:
    """Return the training of ``network``; seeds are left out of what the adversary lacks."""
    from exhume.training import Augmentation, DPClipping, Training

    seed = seed if table.seed is None else table.seed
    draws = seed if table.draw_seed is None else table.draw_seed
    private, augmentation = table.clipping, table.augmentation
    made = Training(
        network,
        classes,
        optimiser_of(table),
        table.epochs,
        batches_of(table, seed if knowledge.order else None),
        Initialisation(Scheme(table.initialisation), seed if knowledge.initial is True else None),
        None if private is None else DPClipping(private.norm, private.noise_multiplier),
        table.precision,
        release.device,
        schedule=schedule_of(table.schedule),
        gradient_norm=table.gradient_norm,
        label_smoothing=table.label_smoothing,
        class_weights=table.class_weights,
        stop_after=table.stop_after,
        augmentation=None if augmentation is None else Augmentation(**augmentation.model_dump()),
    )
    # A training that draws nothing is the same training whatever the seed.
    return replace(made, draw_seed=draws) if knowledge.draws and made.draws else made


def optimiser_of(table: TrainingTable) -> Optimiser:
    """Return the optimiser with its settings."""
    from exhume.training import SGD, Adam, RMSprop

    rate, decay = table.learning_rate, table.weight_decay
    match table.optimiser:
        case "sgd":
            return SGD(rate, table.momentum, decay, table.nesterov)
        case "rmsprop":
            own = (table.smoothing, table.epsilon, decay, table.momentum, table.centred)
            return RMSprop(rate, *own)
    decoupled = table.optimiser == "adamw"
    return Adam(rate, table.beta1, table.beta2, table.epsilon, decay, decoupled)


def batches_of(table: TrainingTable, seed: int | None) -> Batches | None:
    """Return the mini-batches, None where every step takes all records."""
    from exhume.training import Batches

    return None if table.batch_size is None else Batches(table.batch_size, seed, table.poisson)


def schedule_of(table: ScheduleTable | None) -> RateSchedule | None:
    """Return the schedule of the learning rate, None where it is constant."""
    from exhume.training import CosineDecay, OneCycle, StepDecay, WarmUp

    if table is None:
        return None
    found: RateSchedule | None = None
    match table.name:
        case "step":
            found = StepDecay(table.every, table.after, table.factor, table.per)
        case "cosine":
            found = CosineDecay(table.over, table.lowest, table.per)
        case "one-cycle":
            momentum = None if table.momentum is False else table.momentum
            divisors = (table.start_divisor, table.end_divisor)
            return OneCycle(table.rising, *divisors, momentum, table.linear)
    if table.warm_up is None:
        return found
    return WarmUp(table.warm_up, table.warm_up_from, found, table.per)
