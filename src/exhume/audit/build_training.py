"""A training as a configuration's table describes it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from exhume.config import KnowledgeTable, NetworkReleaseTable, ScheduleTable, TrainingTable
from exhume.models.initialise import Initialisation, Scheme
from exhume.protocol.errors import InputError
from exhume.training.model import Label

if TYPE_CHECKING:
    from exhume.models import Network
    from exhume.protocol.arrays import Array
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

    own = seed if table.seed is None else table.seed
    draws = seed if table.draw_seed is None else table.draw_seed
    private, augmentation = table.clipping, table.augmentation
    start = own if knows("initial", knowledge, release, table.seed) else None
    made = Training(
        network,
        classes,
        optimiser_of(table),
        table.epochs,
        batches_of(table, knowledge, release, seed),
        Initialisation(Scheme(table.initialisation), start),
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
    known = knows("draws", knowledge, release, table.draw_seed)
    return replace(made, draw_seed=draws) if known and made.draws else made


def knows(
    what: str, knowledge: KnowledgeTable, release: NetworkReleaseTable, seed: int | None
) -> bool:
    """Whether what a training drew is known by its seed: ``initial``, ``order`` or ``draws``.

    A model from a file was trained elsewhere: there it takes a word or a seed in the table.
    """
    told = what in knowledge.model_fields_set or seed is not None
    return getattr(knowledge, what) is True and (release.file is None or told)


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


def batches_of(
    table: TrainingTable, knowledge: KnowledgeTable, release: NetworkReleaseTable, seed: int
) -> Batches | None:
    """Return the mini-batches, None where every step takes all records."""
    from exhume.training import Batches, GivenBatches

    if table.batch_size is None:
        return None
    if isinstance(knowledge.order, Path):
        return GivenBatches(table.batch_size, order=_order_in(knowledge.order))
    own = seed if table.seed is None else table.seed
    # Only a secret order amplifies privacy: that is for the user to say.
    private = table.clipping is not None and knowledge.order is True
    known = private or knows("order", knowledge, release, table.seed)
    return Batches(table.batch_size, own if known else None, table.poisson)


def _order_in(path: Path) -> Array:
    """Return the only array of a file."""
    from exhume.data.array_files import read_arrays
    from exhume.training import GivenBatches

    arrays = read_arrays(path)
    if len(arrays) != 1:
        raise InputError(
            f"{path} must hold one array, a row of record numbers per epoch, got {len(arrays)}: "
            f"{', '.join(arrays)}"
        )
    (order,) = arrays.values()
    try:
        return GivenBatches(1, order=order).order
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


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
