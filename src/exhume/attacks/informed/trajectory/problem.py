"""What trajectory inversion needs to know, and the training that it repeats."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from exhume.models.initialise import GivenInitialisation
from exhume.protocol.attack import Lacking, Refusal
from exhume.protocol.defence import Blurring, Defence, undefended
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.mechanism import Mechanism, layers
from exhume.protocol.records import Records
from exhume.protocol.release import Outputs, Release, Weights
from exhume.training.answers import Answers
from exhume.training.network import Training
from exhume.training.own_loop import Loop


@dataclass(frozen=True, eq=False)
class TrajectoryProblem:
    """A training that can be repeated, its known records, and the noise on what it released."""

    training: Training
    fixed_set: Records
    deviation: float

    def known_to(self, knowledge: Knowledge) -> Knowledge:
        """Return the knowledge with this problem's training and fixed set."""
        return replace(knowledge, training=self.training, fixed_set=self.fixed_set)


@dataclass(frozen=True, eq=False)
class RepeatableRelease:
    """A release of a training that the adversary can repeat, except for one record."""

    release: Weights | Outputs
    training: Training
    fixed_set: Records
    knowledge: Knowledge

    def problem(self) -> TrajectoryProblem:
        """Return the training with its initial parameters, and the noise that defences added."""
        assert self.knowledge.training is not None
        fixed_set, variance = self.fixed_set, 0.0
        for one in layers(self.knowledge.training):
            if isinstance(one, Blurring):
                variance += one.deviation(len(fixed_set) + 1) ** 2
                fixed_set = one.prepared(fixed_set)
        training, initial = self.training, self.knowledge.initial
        if initial is not None:
            training = replace(training, initial=GivenInitialisation(parameters=initial))
        return TrajectoryProblem(training, fixed_set, float(np.sqrt(variance)))

    @cached_property
    def alone(self) -> str | None:
        """Why trainings like this can't be simulated many at a time, or None if they can."""
        from exhume.training.many_mlps import unfoldable

        knowledge, training = self.knowledge, self.training
        if not isinstance(self.release, Weights):
            return "answers determine the weights only partly"
        if knowledge.target_weight != 1.0:
            return f"the target has weight {knowledge.target_weight}, only 1 is simulated"
        if training.classes is None and knowledge.labels is None:
            return Lacking("the response of a regression's target", "knowledge.labels")
        return training.objective().mismatch(self.release.parameters) or unfoldable(training)

    @cached_property
    def unresponsive(self) -> str | None:
        """Why the effect of one record can't be predicted to first order, or None if it can."""
        from exhume.attacks.informed.trajectory.linear_response.engine import unresponsive

        assert self.knowledge.training is not None
        if not isinstance(self.release, Weights):
            return "answers determine the weights only partly"
        if any(isinstance(one, Blurring) for one in layers(self.knowledge.training)):
            return "noise on the weights is not part of linear response"
        mismatch = self.training.objective().mismatch(self.release.parameters)
        return mismatch or unresponsive(self.training, len(self.fixed_set))


def repeatable(release: Release, knowledge: Knowledge) -> RepeatableRelease | Refusal:
    """Return the release, or what is missing to repeat the training or to read the release."""
    if not isinstance(release, Weights | Outputs):
        return Refusal("needs the weights or the answers of a network")
    training = _trained(knowledge.training)
    if isinstance(training, Refusal):
        return training
    if isinstance(release, Outputs) != _answers(knowledge.training):
        return Refusal("the release is not of the kind that the known training publishes")
    fixed = knowledge.fixed_set
    if fixed is None or len(fixed) == 0:
        return Refusal(Lacking("needs every other training record", "knowledge.fixed_set"))
    reason = (
        _missing(training, fixed, knowledge)
        or _strange(training, fixed, knowledge)
        or _unread(release, training)
    )
    if reason is not None:
        return Refusal(reason)
    return RepeatableRelease(release, training, fixed, knowledge)


def _trained(mechanism: Mechanism | None) -> Training | Refusal:
    """Return the training inside defences that do not change it, or why there is none."""
    for one in () if mechanism is None else layers(mechanism):
        if isinstance(one, Training):
            return one
        if isinstance(one, Loop):
            return Refusal(
                Lacking(
                    "follows a training step by step, and a loop of your own can only be run",
                    "knowledge.training, which describes it, in place of release.training",
                )
            )
        if isinstance(one, Defence) and not isinstance(one, Blurring):
            return Refusal(f"does not support the defence {one.name!r}")
        if not isinstance(one, Defence | Answers):
            break
    return Refusal("needs the training of a network (knowledge.training)")


def _answers(mechanism: Mechanism | None) -> bool:
    return mechanism is not None and isinstance(undefended(mechanism), Answers)


def _missing(training: Training, fixed_set: Records, knowledge: Knowledge) -> str | None:
    if fixed_set.y is None:
        return "needs the labels of the fixed set"
    if not training.initial.known and knowledge.initial is None:
        return Lacking("needs the initial parameters", "knowledge.initial")
    if training.batches is not None and not training.batches.known:
        return Lacking("needs the order of the mini-batches", "knowledge.order")
    if not training.draws_known:
        return Lacking(
            "needs the draws of dropout and augmentation", "knowledge.training.draw_seed"
        )
    return None


def _strange(training: Training, fixed_set: Records, knowledge: Knowledge) -> str | None:
    if knowledge.record_shape != training.network.record_shape:
        return (
            f"a record has shape {knowledge.record_shape}, "
            f"the network takes {training.network.record_shape}"
        )
    if knowledge.labels is not None and len(knowledge.labels) != 1:
        return f"rebuilds one record, got {len(knowledge.labels)} labels"
    try:
        training.responses(fixed_set.labels)
        if knowledge.labels is not None:
            training.responses(knowledge.labels)
    except InputError as error:
        return str(error)
    if knowledge.initial is not None:
        return training.objective().mismatch(knowledge.initial)
    return None


def _unread(release: Release, training: Training) -> str | None:
    from exhume.attacks.informed.trajectory.observation import observed_release

    try:
        observed_release(release, training.objective())
    except InputError as error:
        return str(error)
    return None
