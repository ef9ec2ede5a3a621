"""Small questions that the tests of this room share."""

from __future__ import annotations

import numpy as np
from tests.contract.cases import records

from exhume.attacks.informed.membership import MembershipQuestion
from exhume.data import load
from exhume.defences import OutputPerturbation
from exhume.models import MLP
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.records import Records
from exhume.training import GLM, Family, Penalty, Training

_DATA = records(Family.LOGISTIC, count=140)
FIXED = _DATA.take(slice(0, 100))
PAIRS = [MembershipQuestion.pair(_DATA.take([i, i + 1])) for i in range(100, 140, 2)]
LOGISTIC = GLM(Family.LOGISTIC, Penalty(1.0, intercept=True), classes=(0, 1))


def perturbed(noise_multiplier: float) -> OutputPerturbation:
    """A logistic regression behind Gaussian noise on its parameters."""
    return OutputPerturbation(LOGISTIC, noise_multiplier, 6.0)


def knowledge(mechanism: Mechanism, fixed_set: Records = FIXED) -> Knowledge:
    """What the informed adversary knows."""
    return Knowledge(record_shape=fixed_set.record_shape, training=mechanism, fixed_set=fixed_set)


def pictures() -> Records:
    """Fashion images thinned to 7 × 7."""
    images = load("fashion-mnist-small").train.take(slice(0, 200))
    return Records(np.asarray(images.x[:, ::4, ::4], dtype=np.float64), images.y)


def network(**settings: object) -> Training:
    """A 49-8-10 network, 20 steps of full-batch descent."""
    defaults: dict[str, object] = {"epochs": 20}
    return Training(MLP((7, 7), 10, hidden=(8,)), tuple(range(10)), **{**defaults, **settings})
