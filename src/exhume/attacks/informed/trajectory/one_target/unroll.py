"""The unrolled form of a training: the fastest one that applies."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from exhume.attacks.informed.trajectory.observation import Observation
from exhume.attacks.informed.trajectory.one_target.kernel_path import KernelUnrolled
from exhume.attacks.informed.trajectory.one_target.unrolled import (
    MEMORY_LIMIT,
    StepwiseUnrolled,
    Unrolled,
)
from exhume.attacks.informed.trajectory.one_target.whole_batch import WholeBatchFamily
from exhume.derivatives.activations import CURVED
from exhume.derivatives.objective import Objective
from exhume.derivatives.perceptron_numpy import NarrowLayers
from exhume.derivatives.perceptron_torch import PerceptronFamily
from exhume.derivatives.step_products import (
    AutogradFamily,
    ClippedFamily,
    Known,
    LossFamily,
    StepRecords,
)
from exhume.models.mlp import MLP
from exhume.protocol.arrays import Array
from exhume.protocol.records import Records
from exhume.training.loop import BatchLoss, StepRule
from exhume.training.network import Training
from exhume.training.optimisers import SGD
from exhume.training.simulator import repeatable


def unroll(
    training: Training,
    fixed_set: Records,
    observation: Observation,
    *,
    objective: Objective,
    target_weight: float = 1.0,
    memory_limit: int = MEMORY_LIMIT,
    blur: float = 0.0,
) -> Unrolled:
    """Return the training on ``fixed_set`` and one more, last record as a map of that record.

    It has the precision and the device of ``objective``. Raises InputError if the training can't be
    repeated; the noise of DP-GD is omitted. ``blur`` is that of ``NarrowLayers``: products include
    nearby kinks, but are then exact nowhere.
    """
    layers = _layers(training, blur)
    fits = layers is not None and _kernel_fits(training, layers, len(fixed_set), memory_limit)
    if layers is None or not fits or not isinstance(training.optimiser, SGD):
        return unroll_stepwise(
            training,
            fixed_set,
            observation,
            objective=objective,
            target_weight=target_weight,
            memory_limit=memory_limit,
        )
    training = repeatable(training)
    known = known_tensors(training, objective, fixed_set)
    flat = Known(known.x.reshape(len(known.x), -1), known.labels, known.weight)
    batches = batches_of(training, len(fixed_set), target_weight, objective.device)
    initial = _initial(training, objective)
    assert isinstance(training.optimiser, SGD)
    return KernelUnrolled(layers, flat, initial, training.optimiser, batches, observation)


def unroll_stepwise(
    training: Training,
    fixed_set: Records,
    observation: Observation,
    *,
    objective: Objective,
    target_weight: float = 1.0,
    memory_limit: int = MEMORY_LIMIT,
) -> StepwiseUnrolled:
    """Return the same map for any training: slower, with limited memory."""
    training = repeatable(training)
    known = known_tensors(training, objective, fixed_set)
    return StepwiseUnrolled(
        losses_of(training, objective, known),
        _initial(training, objective),
        StepRule(training, objective, len(fixed_set) + 1),
        batches_of(training, len(fixed_set), target_weight, objective.device),
        observation,
        unknowns=math.prod(fixed_set.record_shape) + training.network.outputs,
        memory_limit=memory_limit,
    )


def _initial(training: Training, objective: Objective) -> Tensor:
    # Nothing is drawn from this stream: a repeatable training has its own seed.
    return objective.flat(training.initial.draw(training.network, np.random.default_rng(0)))


def _layers(training: Training, blur: float) -> NarrowLayers | None:
    network = training.network
    plain = isinstance(network, MLP) and network.activation in CURVED and network.hidden
    simple = training.clipping is None and training.refinement is None
    if not plain or not simple or training.device != "cpu":
        return None
    assert isinstance(network, MLP)
    widths = (math.prod(network.record_shape), *network.hidden, network.outputs)
    return NarrowLayers(widths, network.activation, training.classes is not None, blur)


def _kernel_fits(training: Training, layers: NarrowLayers, records: int, memory_limit: int) -> bool:
    """Whether the kernel has less than half the inputs' size, and all signals fit the memory."""
    steps = 1 if training.batches is None else training.batches.steps_an_epoch(records + 1)
    numbers = training.epochs * steps * 5 * (records + 1) * sum(layers.widths[1:])
    fits = 8 * numbers <= memory_limit
    return fits and records <= 2 * layers.widths[0]


def known_tensors(training: Training, objective: Objective, fixed_set: Records) -> Known:
    """Return the fixed set as tensors, with labels in the form that the loss needs."""
    count = len(fixed_set)
    weight = np.ones(count) if fixed_set.weight is None else fixed_set.weight
    labels = label_vectors(training, fixed_set.labels)
    return Known(objective.tensor(fixed_set.x), objective.tensor(labels), objective.tensor(weight))


def label_vectors(training: Training, labels: Array) -> Array:
    """Return labels (n,) as (n, outputs): 1 at the class, or the response itself."""
    responses = training.responses(np.asarray(labels))
    if training.classes is None:
        return responses[:, None]
    return np.eye(len(training.classes))[responses]


def losses_of(training: Training, objective: Objective, known: Known) -> LossFamily:
    """Return the fastest products that this training allows."""
    if training.clipping is not None:
        return ClippedFamily(objective, known, training.clipping.norm)
    if training.joined:
        tape = training.tape(np.random.default_rng(0))
        return WholeBatchFamily(BatchLoss(training, objective, tape), known)
    network = training.network
    if not isinstance(network, MLP) or network.activation not in CURVED:
        return AutogradFamily(objective, known)
    widths = (math.prod(network.record_shape), *network.hidden, network.outputs)
    flat = Known(known.x.reshape(len(known.x), -1), known.labels, known.weight)
    return PerceptronFamily(widths, network.activation, objective.loss, flat)


def batches_of(
    training: Training, known: int, target_weight: float, device: torch.device
) -> list[StepRecords]:
    """Return every step's batch of ``known`` records followed by the target."""
    found = []
    for step, chosen in enumerate(training.steps(known + 1, np.random.default_rng(0))):
        if chosen is None:
            found.append(StepRecords(None, target_weight, known + 1, step))
            continue
        # The products expect the record last in its batch; random draws need the original order.
        rows = torch.as_tensor(chosen if training.draws else np.sort(chosen), device=device)
        present = known in chosen
        count = len(chosen)
        if training.clipping is not None and training.batches is not None:
            count = min(known + 1, training.batches.size)
        found.append(StepRecords(rows, target_weight if present else 0.0, count, step))
    return found
