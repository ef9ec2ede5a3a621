"""The closed-form attack on generalised linear models (Balle et al. 2022, §III)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from exhume import training
from exhume.attacks.linear.candidates import answer
from exhume.attacks.linear.early_stopping import can_rehearse, rehearsed
from exhume.attacks.linear.read_release import (
    LinearRelease,
    Pipeline,
    Reading,
    Shared,
    parameters_of,
    readable,
)
from exhume.protocol.arrays import FloatArray
from exhume.protocol.attack import GroupedAttack, Refusal, ThreatModel
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction
from exhume.protocol.release import Release
from exhume.training.families import Family
from exhume.training.newton import readings_each

_CHUNK = 64


@dataclass(frozen=True)
class GLM(GroupedAttack[LinearRelease]):
    """Solves the optimality condition of a released linear model for the one unknown record.

    With an intercept, the attack also finds the label. Without one, a regression's label (or some
    attribute) must be known, and up to two candidates are returned. A released scaler reveals the
    record by itself; the better of both answers comes first. Noise that the adversary knows of
    (rounding, a defence, low precision, an unfinished solver) is weighted, with the fixed set as
    prior.
    """

    rehearsals: int = 12
    """How often to train again with the candidate if the solver stopped early (0: never)."""
    name: ClassVar[str] = "glm"
    made_for: ClassVar[ThreatModel | None] = ThreatModel.LINEAR_MODEL

    def parse(self, release: Release, knowledge: Knowledge) -> LinearRelease | Refusal:
        """Say why the release can't be read, or what is missing to solve it."""
        read = readable(release, knowledge)
        if isinstance(read, Refusal):
            return read
        model = read.made.model
        undetermined = (
            not model.intercept
            and not model.family.classifies
            and knowledge.labels is None
            and knowledge.known_attributes is None
        )
        if undetermined and not model.standardise:
            return Refusal(
                f"a {model.family.value} model without intercept determines the record only up "
                "to its length: give the target's label or one of its attributes"
            )
        reason = _bad_label(knowledge, model) or _unknown_share(read)
        return read if reason is None else Refusal(reason)

    def _group_key(self, problem: LinearRelease) -> tuple[int, int, float]:
        known = problem.knowledge
        return id(known.fixed_set), id(known.training), known.target_weight

    def _solve_group(
        self, problems: Sequence[LinearRelease], rngs: Sequence[np.random.Generator]
    ) -> list[Reconstruction]:
        """Read releases that share a fixed set together: two products give all their gradients."""
        shared = Shared(problems[0].knowledge, problems[0].made)
        results: list[Reconstruction] = []
        for i in range(0, len(problems), _CHUNK):
            chunk = problems[i : i + _CHUNK]
            # A scale that was rounded to 0 divides by it: a gradient that is not finite is refused.
            with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
                readings = _read(chunk, shared)
            for problem, reading in zip(chunk, readings, strict=True):
                results.append(self._answer(reading, problem.knowledge, shared))
        return results

    def _answer(self, reading: Reading, knowledge: Knowledge, shared: Shared) -> Reconstruction:
        first = answer(reading, knowledge)
        if self.rehearsals == 0 or reading.model.standardise or not can_rehearse(reading):
            return first
        return rehearsed(reading, knowledge, shared, first, answer, rounds=self.rehearsals)


def _bad_label(knowledge: Knowledge, model: training.GLM) -> str | None:
    if knowledge.labels is None:
        return None
    if len(knowledge.labels) != 1:
        return f"one target, so one label: {len(knowledge.labels)} given"
    label = knowledge.labels.tolist()[0]
    if model.classes is not None and label not in model.classes:
        return f"the target's label is given as {label!r}, the model's classes are {model.classes}"
    return None


def _unknown_share(read: LinearRelease) -> str | None:
    """Return what the fixed set alone can't determine of the objective with the target, or None."""
    model = read.made.model
    if model.penalty.averaged and model.class_weights is not None:
        return (
            "the penalty is averaged over class weights, and the target's own weight is unknown: "
            "state the penalty for the summed loss"
        )
    if model.solver.name == "exact" or model.classes is None:
        return None
    missing = set(model.classes) - set(read.fixed_set.labels.tolist())
    if missing:
        return (
            f"no record of the fixed set has class {sorted(map(str, missing))}: without it the "
            f"{model.solver.name} solver cannot run on the fixed set alone, and its distance "
            "from the optimum is unknown"
        )
    return None


def _read(releases: Sequence[LinearRelease], shared: Shared) -> list[Reading]:
    known = releases[0].made
    parts = [parameters_of(one.release, known) for one in releases]
    if known.model.standardise and all(scaler for _, _, scaler in parts):
        scalers = [scaler for _, _, scaler in parts]
        pools = [shared.scaled_pool(scaler) for scaler in scalers]
        gradients, rounding = shared.readings(np.stack([p[0] for p in parts]), scalers)
    else:
        pools = [shared.pool] * len(parts)
        gradients, rounding = readings_each(shared.problem, np.stack([p[0] for p in parts]))
    return [
        Reading(
            known.model,
            theta,
            _centred(known, gradient),
            float(np.hypot(own, shared.slack)),
            float(own),
            deviation,
            scaler,
            pool,
        )
        for pool, gradient, own, (theta, deviation, scaler) in zip(
            pools, gradients, rounding, parts, strict=True
        )
    ]


def _centred(known: Pipeline, gradient: FloatArray) -> FloatArray:
    """The outputs of a softmax gradient sum to zero; any other sum is not due to the target."""
    if known.model.family is not Family.MULTINOMIAL:
        return gradient
    return np.asarray(gradient - gradient.mean(axis=1, keepdims=True))
