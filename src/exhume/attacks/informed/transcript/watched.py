"""The unknown record's part of a transcript: each step's sum without the known records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.attack import Lacking, Refusal
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.records import Records
from exhume.protocol.release import Release, Transcript
from exhume.training.recorded import RecordedTraining, StepRules

if TYPE_CHECKING:
    from torch import Tensor

    from exhume.derivatives.objective import Objective


@dataclass(frozen=True, eq=False)
class WatchedTraining:
    """A transcript, the training behind it, and every record but one."""

    transcript: Transcript
    training: RecordedTraining
    rules: StepRules
    fixed_set: Records
    knowledge: Knowledge


@dataclass(frozen=True, eq=False)
class Rest:
    """Every step without the known records, (steps, P): the unknown record's part plus noise.

    ``thetas`` (steps, P) are the parameters before each step. ``deviations`` (steps,) are the
    standard deviations of the noise on each number. They are the stated ones, or the stated ones
    times ``measured`` if the measurement contradicts them.
    """

    objective: Objective
    training: RecordedTraining
    rules: StepRules
    thetas: Tensor
    values: Tensor
    deviations: FloatArray
    measured: float | None

    @property
    def contradicted(self) -> bool:
        """Whether the measured noise contradicts the stated noise."""
        return not np.array_equal(self.deviations, self.rules.deviations)


def watched(release: Release, knowledge: Knowledge) -> WatchedTraining | Refusal:
    """Read a release as a transcript of a training with exactly one unknown record."""
    training, fixed_set = knowledge.training, knowledge.fixed_set
    if not isinstance(release, Transcript):
        return Refusal("needs a transcript: the parameters and gradients of the training's steps")
    if training is None:
        return Refusal(Lacking("needs the training behind the transcript", "knowledge.training"))
    if not isinstance(training, RecordedTraining):
        return Refusal("the training that is known publishes no transcript of its steps")
    if fixed_set is None:
        return Refusal(Lacking("needs every other training record", "knowledge.fixed_set"))
    if release.members is not None and release.members.shape[1] != len(fixed_set):
        return Refusal(
            f"the transcript covers {release.members.shape[1]} known records, the fixed set has "
            f"{len(fixed_set)}"
        )
    reason = training.objective().mismatch(release.final)
    if reason is not None:
        return Refusal(f"the transcript is of another model: {reason}")
    try:
        rules = training.rules(len(fixed_set) + 1)
    except InputError as error:
        return Refusal(str(error))
    if release.steps[-1] >= len(rules.counts):
        return Refusal(
            f"the transcript has step {release.steps[-1]}, the training {len(rules.counts)} steps"
        )
    rules = rules.take(release.steps)
    if release.members is None and (rules.rates < 1.0).any():
        return Refusal("the transcript does not tell which known records took part in each step")
    return WatchedTraining(release, training, rules, fixed_set, knowledge)


def rest_of(problem: WatchedTraining) -> Rest:
    """Subtract the known records' clipped gradients from each step, in the training's precision."""
    import torch

    from exhume.derivatives.record_gradients import record_gradients

    objective, rules, fixed_set = problem.training.objective(), problem.rules, problem.fixed_set
    thetas, sent = (_rows(objective, part) for part in _parts(problem.transcript))
    x = objective.tensor(fixed_set.x)
    y = objective.responses(problem.training.responses(fixed_set.labels))
    weight = None if fixed_set.weight is None else objective.tensor(fixed_set.weight)
    members = problem.transcript.members
    left = []
    for step, (theta, gradient) in enumerate(zip(thetas, sent, strict=True)):
        part = slice(None) if members is None else torch.tensor(np.flatnonzero(members[step]))
        each = record_gradients(objective, theta, x[part], y[part])
        share = each.shares(
            objective.tensor(rules.norms[step]), None if weight is None else weight[part]
        )
        left.append(float(rules.counts[step]) * gradient - each.weighted_sum(share))
    values = torch.stack(left)
    deviations, measured = _noise(values, rules)
    return Rest(objective, problem.training, rules, thetas, values, deviations, measured)


def _parts(transcript: Transcript) -> tuple[dict[str, Array], dict[str, Array]]:
    return dict(transcript.parameters), dict(transcript.gradients)


def _rows(objective: Objective, arrays: dict[str, Array]) -> Tensor:
    """Return arrays (steps, *shape) by name as one vector per step."""
    flat = [np.asarray(arrays[name]).reshape(len(arrays[name]), -1) for name in objective.shapes]
    return objective.tensor(np.concatenate(flat, axis=1))


_SURE = 6.0
"""More standard errors than this between measured and stated noise are not chance."""


def _noise(values: Tensor, rules: StepRules) -> tuple[FloatArray, float | None]:
    """Compare the spread of the remainder with the stated noise.

    The unknown record adds at most its clipping norm, in one direction of the P numbers. That much
    more spread is allowed. Without stated noise there is nothing to compare.
    """
    stated = rules.deviations
    if (stated <= 0).any():
        return stated, None
    steps, size = values.shape
    squares = values.double().square().sum(dim=1).cpu().numpy() / (size * stated**2)
    measured = float(np.sqrt(squares.mean()))
    slack = _SURE * np.sqrt(2.0 / (steps * size))
    granted = float(np.mean((rules.norms**2).sum(axis=1) / (size * stated**2)))
    agrees = 1.0 - slack <= measured**2 <= 1.0 + granted + slack
    return (stated if agrees else measured * stated), measured
