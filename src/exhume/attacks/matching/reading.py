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
from exhume.attacks.matching.objectives import Distance, Released
from exhume.attacks.matching.priors import Frame
from exhume.attacks.matching.simulation import watch_statistics
from exhume.attacks.matching.stack import simulation_of
from exhume.attacks.matching.visible import deviations, limits, sent
from exhume.defences import Defence, undefended
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
    """A release that can be matched: the mechanism, θ, what was released.

    ``stack`` is the mechanism as it is known, ``mechanism`` what is under the defences around it.
    ``masked``: zeros that a defence put in are recognised.
    """

    mechanism: GradientStep | LocalSteps | Aggregate
    step: GradientStep
    parameters: Mapping[str, Array]
    arrays: Mapping[str, FloatArray]
    total: int
    knowledge: Knowledge
    stack: Mechanism
    masked: bool = True

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

    def ignoring(self) -> Reading:
        """Return the reading of an adversary that takes the release for an unprotected one."""
        bare = bared(self.mechanism)
        return replace(self, mechanism=bare, stack=bare, masked=False)

    def assuming(self, mechanism: GradientStep | LocalSteps | Aggregate) -> Reading:
        """Return the reading with another mechanism under the same defences."""
        stack = _around(self.stack, self.mechanism, mechanism)
        return replace(self, mechanism=mechanism, stack=stack)


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
    stack = knowledge.training
    assert stack is not None
    found = Reading(mechanism, step, parameters, arrays, release.batch_size, knowledge, stack)
    return found if found.count > 0 else _too_many(found)


def problem_of(
    reading: Reading,
    distance: Distance,
    *,
    labels: Array | None,
    precision: str,
) -> Problem:
    """Return the loop's problem; ``labels`` (count,) as the data has them, None to find them."""
    step, knowledge = reading.step, reading.knowledge
    objective = step.objective(precision)
    simulation = simulation_of(reading.stack, objective, reading.parameters, reading.arrays)
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
        released=_released(reading, frame),
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


def _released(reading: Reading, frame: Frame) -> Released:
    scale, none = reading.length, dict.fromkeys(reading.arrays)
    where = sent(reading.stack, reading.arrays) if reading.masked else none
    most = limits(reading.stack, reading.arrays) if reading.masked else none
    noise = deviations(reading.stack, reading.arrays, reading.total)

    def tensors(arrays: Mapping[str, Array | None]) -> tuple[Tensor | None, ...]:
        return tuple(None if a is None else frame.tensor(a) for a in arrays.values())

    return Released(
        tuple(frame.tensor(a / scale) for a in reading.arrays.values()),
        tensors(where),
        scale,
        deviations=tuple(noise[n] / scale for n in reading.arrays),
        limits=tuple(None if m is None else m / scale for m in most.values()),
    )


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


def bared(mechanism: Mechanism) -> GradientStep | LocalSteps | Aggregate:
    """Return the mechanism without any defence around it, between clients and steps, or inside."""
    inner = undefended(mechanism)
    if isinstance(inner, LocalSteps):
        return replace(inner, client=inner.client.plain())
    if isinstance(inner, Aggregate):
        return replace(inner, client=bared(inner.client))
    assert isinstance(inner, GradientStep)
    return inner


def _around(
    stack: Mechanism, old: Mechanism, new: GradientStep | LocalSteps | Aggregate
) -> Mechanism:
    """Return the defences of ``stack`` around ``new`` instead of ``old``."""
    if stack is old or not isinstance(stack, Defence):
        return new
    return replace(stack, inner=_around(stack.inner, old, new))  # type: ignore[type-var]


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
