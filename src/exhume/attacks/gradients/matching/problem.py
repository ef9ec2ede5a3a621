"""Builds the problem for the loop from a release and the knowledge, or says why it can't."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from exhume.attacks.gradients.matching.loop import MatchingProblem
from exhume.attacks.gradients.matching.objectives import Distance, Released
from exhume.attacks.gradients.matching.priors import Frame
from exhume.attacks.gradients.matching.sent_entries import sent
from exhume.defences import Defence, undefended
from exhume.models.base import misfits
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.attack import Lacking, Refusal
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.release import Gradient, Release, Update
from exhume.training.gradient import GradientStep, gradient_step, public_parameters
from exhume.training.local_steps import Aggregate, LocalSteps
from exhume.training.simulation import simulation_of, watch_statistics


@dataclass(frozen=True, eq=False)
class MatchableRelease:
    """A release that can be matched: the mechanism, θ, what was released (as ``arrays``).

    ``stack`` is the mechanism as it is known, ``mechanism`` what is under the defences around it.
    ``masked``: zeros that a defence put in are recognised.
    """

    mechanism: GradientStep | LocalSteps | Aggregate
    step: GradientStep
    parameters: Mapping[str, Array]
    arrays: Mapping[str, FloatArray]
    release: Gradient | Update
    knowledge: Knowledge
    stack: Mechanism
    masked: bool = True

    @property
    def total(self) -> int:
        """How many records the batch has."""
        return self.release.batch_size

    @property
    def count(self) -> int:
        """The number of unknown records in the batch."""
        fixed = self.knowledge.fixed_set
        return self.total - (0 if fixed is None else len(fixed))

    @property
    def length(self) -> float:
        """The Euclidean norm of the release."""
        height = max(float(np.abs(a).max(initial=0.0)) for a in self.arrays.values())
        if height == 0.0:
            return 0.0
        return height * math.sqrt(
            sum(float(((a / height) ** 2).sum()) for a in self.arrays.values())
        )

    def ignoring(self) -> MatchableRelease:
        """Return the reading of an adversary that assumes an unprotected release."""
        bare = bared(self.mechanism)
        return replace(self, mechanism=bare, stack=bare, masked=False)

    def assuming(self, mechanism: GradientStep | LocalSteps | Aggregate) -> MatchableRelease:
        """Return the reading with another mechanism under the same defences."""
        stack = _around(self.stack, self.mechanism, mechanism)
        return replace(self, mechanism=mechanism, stack=stack)


def read(release: Release, knowledge: Knowledge) -> MatchableRelease | Refusal:
    """Return the release in a form that can be matched, or why it can't be."""
    if not isinstance(release, Gradient | Update):
        kind = type(release).__name__
        return Refusal(f"{kind} hold no gradient: a gradient or an update is needed")
    stack = knowledge.training
    step, mechanism = gradient_step(stack), _plain(stack)
    if stack is None or step is None or mechanism is None:
        return Refusal("the training is not known to be a gradient step of a network")
    local = isinstance(mechanism, LocalSteps) or (
        isinstance(mechanism, Aggregate) and isinstance(mechanism.client, LocalSteps)
    )
    if local != isinstance(release, Update):
        return Refusal(f"the training does not release a {type(release).__name__.lower()}")
    parameters = public_parameters(knowledge)
    if parameters is None:
        return Refusal(
            Lacking(
                "the parameters at which the gradient was taken are not known", "knowledge.initial"
            )
        )
    arrays = {n: np.asarray(a, dtype=np.float64) for n, a in release.arrays()}
    reason = _mismatch(step, arrays, parameters)
    if reason is not None:
        return Refusal(reason)
    if knowledge.record_shape != step.network.record_shape:
        return Refusal(
            f"a record has shape {knowledge.record_shape}, "
            f"the network takes {step.network.record_shape}"
        )
    if knowledge.target_weight != 1.0:
        return Refusal("gradient matching needs records with equal weights in the loss")
    known = 0 if knowledge.fixed_set is None else len(knowledge.fixed_set)
    if known >= release.batch_size:
        return Refusal(
            f"the fixed set has {known} records and the batch only {release.batch_size}: records "
            "like the batch's, but not in it, are shadow targets"
        )
    return MatchableRelease(mechanism, step, parameters, arrays, release, knowledge, stack)


def problem_of(
    reading: MatchableRelease,
    distance: Distance,
    *,
    labels: Array | None,
    precision: str,
) -> MatchingProblem:
    """Return the loop's problem; ``labels`` (count,) are the data's own, or None to infer them."""
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
    problem = MatchingProblem(
        simulation=simulation,
        released=_released(reading, frame),
        distance=distance,
        frame=frame,
        labels=None if labels is None else objective.responses(step.responses(labels)),
        known=known,
        attributes=_attributes(knowledge, frame),
    )
    return with_statistics(problem, known_statistics(reading))


def known_statistics(reading: MatchableRelease) -> Mapping[str, Array] | None:
    """Return the batch-norm statistics to compare with: the batch's own, or the running ones.

    Returns None if the network has no normalisation, or if its statistics are unknown.
    """
    names = [n for n in _buffer_names(reading.step) if n.endswith(("running_mean", "running_var"))]
    if not names:
        return None
    if reading.knowledge.batch_norm is not None:
        return reading.knowledge.batch_norm
    return None if reading.step.buffers is None else dict(reading.step.buffers)


def with_statistics(problem: MatchingProblem, known: Mapping[str, Array] | None) -> MatchingProblem:
    """Return the problem with the known batch-norm statistics to compare with.

    ``known`` maps ``<layer>.running_mean`` and ``<layer>.running_var`` to the private batch's mean
    and (biased) variance of each channel of that layer's input, or to similar running ones.
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


def _released(reading: MatchableRelease, frame: Frame) -> Released:
    scale, none = reading.length, dict.fromkeys(reading.arrays)
    where = sent(reading.stack, reading.arrays) if reading.masked else none
    most = reading.stack.withheld_limits(reading.arrays) if reading.masked else none
    noise = reading.stack.deviations(reading.arrays, reading.total)

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
    """Return the mechanism without any defence, around or inside clients and steps."""
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
    for reason in misfits(shapes, arrays, some=True):
        return f"of what was released, {reason}"
    for reason in misfits(shapes, parameters, more=True):
        return f"of the known parameters, {reason}"
    return None
