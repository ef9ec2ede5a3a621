"""Small trainings on which every attack, mechanism and defence is tested.

A test file elsewhere imports them by ``from tests.contract.cases import Case, GLM_CASES``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from exhume.defences import OutputPerturbation, Rounding
from exhume.protocol.knowledge import Knowledge, KnownAttributes
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.records import Records
from exhume.protocol.release import Answer, Release
from exhume.training import GLM, Answers, Family, Penalty, Solver

FEATURES = 4


@dataclass(frozen=True, eq=False)
class Case:
    """A mechanism, the records the adversary has, and the targets it does not have."""

    name: str
    mechanism: Mechanism
    fixed_set: Records
    targets: Records
    value_range: tuple[float, float] | None = None
    labels_known: bool = False
    known_features: tuple[int, ...] = ()

    def __str__(self) -> str:
        return self.name

    @cached_property
    def releases(self) -> list[Release]:
        """One release per target, each with its own random stream."""
        return list(self.mechanism.publish_each(self.fixed_set, self.targets, rngs=self.streams()))

    def streams(self) -> list[np.random.Generator]:
        """Fresh random streams, one per target."""
        return [np.random.default_rng([5, i]) for i in range(len(self.targets))]

    @cached_property
    def knowledge(self) -> list[Knowledge]:
        """The adversary's knowledge of each target; the fixed set is shared."""
        return [self._knowledge(i) for i in range(len(self.targets))]

    def _knowledge(self, i: int) -> Knowledge:
        target = self.targets.take([i])
        weight = 1.0 if target.weight is None else float(target.weight[0])
        return Knowledge(
            record_shape=self.targets.record_shape,
            value_range=self.value_range,
            training=self.mechanism,
            fixed_set=self.fixed_set,
            labels=target.y if self.labels_known else None,
            target_weight=weight,
            known_attributes=self._attributes(target) if self.known_features else None,
        )

    def _attributes(self, target: Records) -> KnownAttributes:
        mask = np.zeros(target.record_shape, dtype=bool)
        mask.reshape(-1)[list(self.known_features)] = True
        return KnownAttributes(mask, target.x[0])


def records(family: Family, *, count: int = 63, seed: int = 0) -> Records:
    """Noisy records of a family, (count, 4): no class is separable, every class occurs."""
    rng = np.random.default_rng([seed, *family.value.encode()])
    x = rng.normal(size=(count, FEATURES))
    score = x @ np.array([0.8, -0.5, 0.3, 0.0]) + 0.2
    match family:
        case Family.LINEAR:
            y = score + rng.normal(0, 0.5, count)
        case Family.POISSON:
            y = rng.poisson(np.exp(0.5 * score)).astype(np.float64)
        case Family.LOGISTIC:
            y = (score + rng.logistic(size=count) > 0).astype(np.int64)
        case Family.MULTINOMIAL:
            scores = np.stack([score, -score, x[:, 3]], axis=1) + rng.gumbel(size=(count, 3))
            y = scores.argmax(axis=1)
    return Records(x, y)


def case(name: str, mechanism: Mechanism, data: Records) -> Case:
    """A case whose last three records are the targets."""
    return Case(name, mechanism, data.take(np.arange(len(data) - 3)), data.take([-3, -2, -1]))


def model(family: Family, penalty: Penalty | None = None) -> GLM:
    """A model of the family with the classes of ``records``, λ = 1 by default."""
    classes = {Family.LOGISTIC: (0, 1), Family.MULTINOMIAL: (0, 1, 2)}.get(family)
    return GLM(family, penalty or Penalty(1.0), classes=classes)


def without_intercept(family: Family) -> GLM:
    """The same without intercept."""
    return replace(model(family), intercept=False)


def standardised(family: Family) -> GLM:
    """The same with a scaler."""
    return replace(model(family), standardise=True)


_DATA = {family: records(family) for family in Family}
_QUERIES = np.random.default_rng(1).normal(size=(9, FEATURES))
_EVERYWHERE = Penalty(1.0, intercept=True)


def _pictures() -> Records:
    logistic = _DATA[Family.LOGISTIC]
    return Records(logistic.x.reshape(-1, 2, 2), logistic.y)


def _words() -> Records:
    logistic = _DATA[Family.LOGISTIC]
    return Records(logistic.x, np.array(["benign", "malign"])[logistic.labels])


def _weighted() -> Records:
    logistic = _DATA[Family.LOGISTIC]
    return replace(logistic, weight=np.random.default_rng(2).uniform(0.5, 2.0, len(logistic)))


MODEL_CASES = (
    *(case(family.value, model(family), _DATA[family]) for family in Family),
    *(case(f"{f.value}, no penalty", model(f, Penalty()), _DATA[f]) for f in Family),
    *(
        case(f"{f.value}, averaged", model(f, Penalty(0.02, averaged=True)), _DATA[f])
        for f in Family
    ),
    *(
        case(f"{f.value}, doubled", model(f, Penalty(0.5, halved=False)), _DATA[f])
        for f in (Family.LINEAR, Family.MULTINOMIAL)
    ),
    *(case(f"{f.value}, penalised intercept", model(f, _EVERYWHERE), _DATA[f]) for f in Family),
    case("weighted records", model(Family.LOGISTIC), _weighted()),
    case("string labels", replace(model(Family.LOGISTIC), classes=("benign", "malign")), _words()),
    case("pictures", model(Family.LOGISTIC), _pictures()),
    case(
        "class weights",
        replace(model(Family.LOGISTIC), class_weights=(0.5, 2.0)),
        _DATA[Family.LOGISTIC],
    ),
    case(
        "unfinished lbfgs",
        replace(model(Family.LOGISTIC), solver=Solver("lbfgs", 1e-4, 100)),
        _DATA[Family.LOGISTIC],
    ),
)
"""Models with an intercept, which reveal x and y together."""

LENGTH_CASES = (
    *(
        replace(case(f"{f.value}, no intercept", without_intercept(f), _DATA[f]), labels_known=True)
        for f in Family
    ),
    replace(
        case(
            "linear, no intercept, one attribute",
            without_intercept(Family.LINEAR),
            _DATA[Family.LINEAR],
        ),
        known_features=(1,),
    ),
)
"""Models without intercept: the label or an attribute determines the record's norm."""

SCALER_CASES = (
    *(case(f"{f.value}, standardised", standardised(f), _DATA[f]) for f in Family),
    case(
        "standardised, rounded",
        Rounding(standardised(Family.LOGISTIC), 6),
        _DATA[Family.LOGISTIC],
    ),
)
"""Models whose scaler is released too."""

ANSWER_CASES = (
    *(case(f"{f.value} scores", Answers(model(f), _QUERIES), _DATA[f]) for f in Family),
    *(
        case(
            f"{f.value} probabilities",
            Answers(model(f), _QUERIES, Answer.PROBABILITIES),
            _DATA[f],
        )
        for f in (Family.LOGISTIC, Family.MULTINOMIAL)
    ),
    *(
        case(f"{f.value} means", Answers(model(f), _QUERIES, Answer.MEANS), _DATA[f])
        for f in (Family.LINEAR, Family.POISSON)
    ),
)
"""Models that release only answers."""

DEFENDED_CASES = (
    case("rounded to 5", Rounding(model(Family.LOGISTIC), 5), _DATA[Family.LOGISTIC]),
    case(
        "rounded answers",
        Rounding(Answers(model(Family.LINEAR), _QUERIES), 5),
        _DATA[Family.LINEAR],
    ),
    replace(
        case(
            "output perturbation",
            OutputPerturbation(model(Family.LOGISTIC, _EVERYWHERE), 0.001, 6.0),
            _DATA[Family.LOGISTIC],
        ),
        labels_known=True,
    ),
    case(
        "output perturbation, rounded",
        Rounding(OutputPerturbation(model(Family.MULTINOMIAL, _EVERYWHERE), 0.001, 6.0), 6),
        _DATA[Family.MULTINOMIAL],
    ),
)
"""Models with a defence that the adversary knows."""

_PLAIN = case("plain", model(Family.LOGISTIC), _DATA[Family.LOGISTIC])

KNOWN_CASES = (
    replace(_PLAIN, name="attributes known", known_features=(0, 2)),
    replace(_PLAIN, name="label known", labels_known=True),
    replace(_PLAIN, name="range known", value_range=(-0.5, 0.5)),
)
"""Adversaries with more knowledge; the range is narrower than the records on purpose."""

GLM_CASES = (
    *MODEL_CASES,
    *LENGTH_CASES,
    *SCALER_CASES,
    *ANSWER_CASES,
    *DEFENDED_CASES,
    *KNOWN_CASES,
)
"""Everything that the closed-form attack accepts."""
