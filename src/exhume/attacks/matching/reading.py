"""From a release and what is known to a problem for the loop, or the reason why there is none."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from exhume.arrays import Array, FloatArray
from exhume.attacks.matching.core import Problem
from exhume.attacks.matching.local_steps import simulation_of
from exhume.attacks.matching.objectives import Distance, Released
from exhume.attacks.matching.priors import Frame
from exhume.attacks.matching.simulation import watch_statistics
from exhume.defences import undefended
from exhume.errors import InputError
from exhume.knowledge import Knowledge
from exhume.mechanism import Mechanism
from exhume.release import Gradient, Release, Update
from exhume.training.gradient import (
    Aggregate,
    GradientStep,
    LocalSteps,
    gradient_step,
    public_parameters,
)


@dataclass(frozen=True, eq=False)
class Reading:
    """A release that can be matched: the mechanism without defences, θ, what was released."""

    mechanism: GradientStep | LocalSteps | Aggregate
    step: GradientStep
    parameters: Mapping[str, Array]
    arrays: Mapping[str, FloatArray]
    total: int
    knowledge: Knowledge

    @property
    def count(self) -> int:
        """How many records of the batch are not known."""
        fixed = self.knowledge.fixed_set
        return self.total - (0 if fixed is None else len(fixed))

    @property
    def length(self) -> float:
        """The Euclidean length of what was released."""
        height = max(float(np.abs(a).max(initial=0.0)) for a in self.arrays.values())
        if height == 0.0:
            return 0.0
        return height * math.sqrt(
            sum(float(((a / height) ** 2).sum()) for a in self.arrays.values())
        )


def read(release: Release, knowledge: Knowledge) -> Reading | str:
    """Return what can be matched, or the reason why nothing can."""
    if not isinstance(release, Gradient | Update):
        return f"{type(release).__name__} hold no gradient: a gradient or an update is needed"
    step, mechanism = gradient_step(knowledge.training), _plain(knowledge.training)
    if step is None or mechanism is None:
        return "the training is not known to be a gradient step of a network"
    local = isinstance(mechanism, LocalSteps) or (
        isinstance(mechanism, Aggregate) and isinstance(mechanism.client, LocalSteps)
    )
    if local != isinstance(release, Update):
        return f"the training does not release a {type(release).__name__.lower()}"
    parameters = public_parameters(knowledge)
    if parameters is None:
        return "the parameters at which the gradient was taken are not known"
    arrays = {n: np.asarray(a, dtype=np.float64) for n, a in release.arrays()}
    reason = _mismatch(step, arrays, parameters)
    if reason is not None:
        return reason
    if knowledge.record_shape != step.network.record_shape:
        return (
            f"a record has shape {knowledge.record_shape}, "
            f"the network takes {step.network.record_shape}"
        )
    if knowledge.target_weight != 1.0:
        return "gradient matching takes records that count alike in the loss"
    found = Reading(mechanism, step, parameters, arrays, release.batch_size, knowledge)
    return found if found.count > 0 else _too_many(found)


def problem_of(
    reading: Reading,
    distance: Distance,
    *,
    labels: Array | None,
    precision: str,
    masked: bool = True,
) -> Problem:
    """Return the loop's problem; ``labels`` (count,) as the data has them, None to find them.

    ``masked``: entries that a defence set to 0 are recognised and not compared.
    """
    step, knowledge = reading.step, reading.knowledge
    objective = step.objective(precision)
    simulation = simulation_of(
        reading.mechanism, objective, reading.parameters, tuple(reading.arrays)
    )
    frame = Frame(
        reading.count,
        step.network.record_shape,
        knowledge.value_range,
        objective.dtype,
        objective.device,
    )
    known = None
    if knowledge.fixed_set is not None and len(knowledge.fixed_set):
        fixed = knowledge.fixed_set
        known = objective.tensor(fixed.x), objective.responses(step.responses(fixed.labels))
    problem = Problem(
        simulation=simulation,
        released=_released(reading, frame, masked),
        distance=distance,
        frame=frame,
        labels=None if labels is None else objective.responses(step.responses(labels)),
        known=known,
        attributes=_attributes(knowledge, frame),
    )
    return with_statistics(problem, known_statistics(reading))


def known_statistics(reading: Reading) -> Mapping[str, Array] | None:
    """Return the batch-norm statistics to compare with: the batch's own, or the running ones.

    None where the network has no normalisation, or nothing is known of it.
    """
    names = [n for n in _buffer_names(reading.step) if n.endswith(("running_mean", "running_var"))]
    if not names:
        return None
    if reading.knowledge.batch_norm is not None:
        return reading.knowledge.batch_norm
    return None if reading.step.buffers is None else dict(reading.step.buffers)


def with_statistics(problem: Problem, known: Mapping[str, Array] | None) -> Problem:
    """Return the problem with the known batch-norm statistics to compare with.

    ``known`` maps ``<layer>.running_mean`` and ``<layer>.running_var`` to the private batch's mean
    and (biased) variance of each channel of that layer's input, or to running ones near them.
    """
    if known is None:
        return problem
    names = watch_statistics(problem.simulation)
    shapes = {n: tuple(b.shape) for n, b in problem.simulation.objective.module.named_buffers()}
    pairs = []
    for name in names:
        keys = f"{name}.running_mean", f"{name}.running_var"
        for key in keys:
            if key not in known or np.shape(known[key]) != shapes.get(key, np.shape(known[key])):
                raise InputError(f"batch_norm needs {key!r} of shape {shapes.get(key)}")
        pairs.append((problem.frame.tensor(known[keys[0]]), problem.frame.tensor(known[keys[1]])))
    return replace(problem, statistics=tuple(pairs))


def withheld(gradient: FloatArray) -> Array | None:
    """Return where (True) a gradient's zeros are a defence's doing, None where they are not.

    A unit that never fires leaves whole rows or columns of zeros; zeros elsewhere, more than one
    in a hundred, were put there.
    """
    zero = gradient == 0.0
    if not zero.any() or zero.all():
        return None
    flat = zero.reshape(len(zero), -1) if zero.ndim > 1 else zero[:, None]
    own = zero.reshape(*zero.shape[:2], -1).all(axis=2) if zero.ndim > 1 else zero[:, None]
    idle = own.all(axis=1)[:, None] | own.all(axis=0)[None, :]
    if zero.ndim == 1:
        idle = np.zeros_like(flat)
    elif zero.ndim > 2:
        idle = np.repeat(idle, flat.shape[1] // idle.shape[1], axis=1)
    unexplained = flat & ~idle
    return zero if unexplained.mean() > 0.01 else None


def _released(reading: Reading, frame: Frame, masked: bool) -> Released:
    scale = reading.length
    hidden = {n: withheld(a) if masked else None for n, a in reading.arrays.items()}
    # A vector's zeros may be idle units; they are a defence's only where a matrix shows one.
    matrices = [n for n, a in reading.arrays.items() if a.ndim > 1]
    if not any(hidden[n] is not None for n in matrices):
        hidden = dict.fromkeys(hidden)
    masks: list[Tensor | None] = [
        None if where is None else frame.tensor(~where) for where in hidden.values()
    ]
    values = tuple(frame.tensor(a / scale) for a in reading.arrays.values())
    return Released(values, tuple(masks), scale)


def _attributes(knowledge: Knowledge, frame: Frame) -> tuple[Tensor, Tensor] | None:
    known = knowledge.known_attributes
    if known is None:
        return None
    mask = torch.tensor(np.asarray(known.mask), device=frame.device)
    return mask, frame.tensor(known.values)


def _buffer_names(step: GradientStep) -> list[str]:
    return [name for name, _ in step.network.build().named_buffers()]


def _plain(mechanism: Mechanism | None) -> GradientStep | LocalSteps | Aggregate | None:
    if mechanism is None:
        return None
    inner = undefended(mechanism)
    return inner if isinstance(inner, GradientStep | LocalSteps | Aggregate) else None


def _mismatch(
    step: GradientStep, arrays: Mapping[str, Array], parameters: Mapping[str, Array]
) -> str | None:
    shapes = step.network.parameter_shapes()
    if not arrays:
        return "nothing was released"
    for name, values in arrays.items():
        if name not in shapes:
            return f"the network has no parameter {name!r}; it has {list(shapes)}"
        if values.shape != shapes[name]:
            return f"{name!r} was released with shape {values.shape}, the network's {shapes[name]}"
    for name, shape in shapes.items():
        if name not in parameters or np.shape(parameters[name]) != shape:
            return f"the known parameters lack {name!r} of shape {shape}"
    return None


def _too_many(reading: Reading) -> str:
    assert reading.knowledge.fixed_set is not None
    return (
        f"the fixed set has {len(reading.knowledge.fixed_set)} records and the batch only "
        f"{reading.total}: records like the batch's, but not in it, are shadow targets"
    )
