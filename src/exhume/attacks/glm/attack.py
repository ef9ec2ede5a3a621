"""The closed-form attack on generalised linear models (Balle et al. 2022, §III)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from exhume import training
from exhume.arrays import FloatArray
from exhume.attacks.base import Attack
from exhume.attacks.glm.candidates import answer
from exhume.attacks.glm.reading import (
    Pipeline,
    Pool,
    Reading,
    Shared,
    parameters_of,
    pipeline,
    unreadable,
)
from exhume.attacks.glm.rehearsal import can_rehearse, rehearsed
from exhume.knowledge import Knowledge
from exhume.reconstruction import Reconstruction
from exhume.release import Outputs, Release, Weights
from exhume.training.families import Family
from exhume.training.newton import readings_each

_CHUNK = 64


@dataclass(frozen=True)
class GLM(Attack):
    """Solves the optimality condition of a released linear model for the one unknown record.

    With an intercept the label comes out too. Without one a regression's label must be known (or
    some attribute), and up to two candidates are returned. A released scaler leaks the record by
    itself: the better of the two answers comes first. Noise that the adversary knows of (rounding,
    a defence, low precision, an unfinished solver) is weighted properly, with the fixed set as
    prior.
    """

    rehearsals: int = 12
    """How often to train again with the candidate, where the solver stopped early (0: never)."""
    name: ClassVar[str] = "glm"

    def accepts(self, release: Release, knowledge: Knowledge) -> str | None:
        """Say why the release can't be read, or what is missing to solve it."""
        reason = unreadable(release, knowledge)
        if reason is not None:
            return reason
        model = _known(knowledge).model
        undetermined = (
            not model.intercept
            and not model.family.classifies
            and knowledge.labels is None
            and knowledge.known_attributes is None
        )
        if undetermined and not model.standardise:
            return (
                f"a {model.family.value} model without intercept fixes the record only up to its "
                "length: give the target's label or one of its attributes"
            )
        return _bad_label(knowledge, model) or _unknown_share(knowledge, model)

    def _reconstruct(
        self, release: Release, knowledge: Knowledge, rng: np.random.Generator
    ) -> Reconstruction:
        return self._reconstruct_each([release], [knowledge], [rng])[0]

    def _reconstruct_each(
        self,
        releases: Sequence[Release],
        knowledge: Sequence[Knowledge],
        rngs: Sequence[np.random.Generator],
    ) -> list[Reconstruction]:
        """Read releases that share a fixed set together: their gradients are two products."""
        results: dict[int, Reconstruction] = {}
        for members in _groups(knowledge):
            known = _known(knowledge[members[0]])
            shared = Shared(knowledge[members[0]], known)
            for i in range(0, len(members), _CHUNK):
                chunk = members[i : i + _CHUNK]
                readings = _read([releases[j] for j in chunk], shared, known)
                for j, reading in zip(chunk, readings, strict=True):
                    results[j] = self._answer(reading, knowledge[j], shared)
        return [results[i] for i in range(len(releases))]

    def _answer(self, reading: Reading, knowledge: Knowledge, shared: Shared) -> Reconstruction:
        first = answer(reading, knowledge)
        if self.rehearsals == 0 or reading.model.standardise or not can_rehearse(reading):
            return first
        return rehearsed(reading, knowledge, shared, first, answer, rounds=self.rehearsals)


def _known(knowledge: Knowledge) -> Pipeline:
    assert knowledge.fixed_set is not None
    known = pipeline(knowledge.training, len(knowledge.fixed_set) + 1)
    assert isinstance(known, Pipeline)
    return known


def _bad_label(knowledge: Knowledge, model: training.GLM) -> str | None:
    if knowledge.labels is None:
        return None
    if len(knowledge.labels) != 1:
        return f"one target, so one label: {len(knowledge.labels)} given"
    label = knowledge.labels.tolist()[0]
    if model.classes is not None and label not in model.classes:
        return f"the target's label is given as {label!r}, the model's classes are {model.classes}"
    return None


def _unknown_share(knowledge: Knowledge, model: training.GLM) -> str | None:
    """What the fixed set alone can't tell of the objective that the target was part of."""
    if model.penalty.averaged and model.class_weights is not None:
        return (
            "the penalty is averaged over class weights, the target's own unknown one among them: "
            "state it for the summed loss"
        )
    if model.solver.name == "exact" or model.classes is None:
        return None
    assert knowledge.fixed_set is not None
    missing = set(model.classes) - set(knowledge.fixed_set.labels.tolist())
    if missing:
        return (
            f"no record of the fixed set has class {sorted(map(str, missing))}: without it the "
            f"{model.solver.name} solver can't be rehearsed, and how far it stops can't be told"
        )
    return None


def _groups(knowledge: Sequence[Knowledge]) -> list[list[int]]:
    groups: dict[tuple[int, int, float], list[int]] = {}
    for i, one in enumerate(knowledge):
        key = (id(one.fixed_set), id(one.training), one.target_weight)
        groups.setdefault(key, []).append(i)
    return list(groups.values())


def _read(releases: Sequence[Release], shared: Shared, known: Pipeline) -> list[Reading]:
    parts = [parameters_of(r, known) for r in releases if isinstance(r, Weights | Outputs)]
    if known.model.standardise:
        problems = [shared.scaled(scaler) for _, _, scaler in parts]
        pools = [Pool(problem, known.model.intercept) for problem in problems]
        pairs = [(problem, part[0]) for problem, part in zip(problems, parts, strict=True)]
        gradients = np.stack([problem.gradient(theta) for problem, theta in pairs])
        rounding = np.array([problem.rounding(theta) for problem, theta in pairs])
    else:
        pools = [shared.pool] * len(parts)
        gradients, rounding = readings_each(shared.problem, np.stack([p[0] for p in parts]))
    return [
        Reading(
            known.model,
            pool.problem,
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
    """The outputs of a softmax gradient sum to zero; what doesn't is a gauge, not a trace."""
    if known.model.family is not Family.MULTINOMIAL:
        return gradient
    return np.asarray(gradient - gradient.mean(axis=1, keepdims=True))
