"""The attacks on weights alone, held to what every attack keeps to."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
import pytest
from tests.contract.attack import AttackContract
from tests.contract.cases import Case

from exhume.attacks import Attack
from exhume.attacks.weights_only import KKT, ChangeSparsity, KnownInitialisation, RowSpace
from exhume.attacks.weights_only.bilevel import Bilevel
from exhume.models.initialise import Initialisation
from exhume.models.two_layer import TwoLayer
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.records import Records
from exhume.training.stationary import Stationary

NETWORK = TwoLayer((6,), 1, 60, hidden_bias=True, output_bias=True)
TRAINING = Stationary(NETWORK, (0, 1), steps=50, rounds=0, initial=Initialisation(seed=1))


def records() -> Records:
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(6, 6))
    return Records(x, np.arange(6) % 2)


class WeightsOnly(Case):
    """The adversary has none of the records; where it matters it has the initial parameters."""

    @cached_property
    def knowledge(self) -> list[Knowledge]:
        initial = TRAINING.initial.draw(NETWORK, np.random.default_rng(0))
        one = Knowledge(
            record_shape=(6,),
            value_range=(0.0, 1.0),
            training=self.mechanism,
            initial=initial if "known" in self.name else None,
        )
        return [replace(one) for _ in range(len(self.targets))]


def case(name: str, training: Stationary = TRAINING) -> WeightsOnly:
    data = records()
    return WeightsOnly(name, training, data.take(np.arange(4)), data.take([4, 5]), (0.0, 1.0))


class TestWeightsOnly(AttackContract):
    @pytest.fixture(
        params=(
            KKT(records=5, restarts=2, steps=20, draws=40),
            RowSpace(records=5, draws=40),
            Bilevel(records=5, steps=5),
        ),
        ids=lambda attack: attack.name,
    )
    def attack(self, request: pytest.FixtureRequest) -> Attack:
        return request.param

    @pytest.fixture
    def case(self) -> Case:
        return case("weights only")


class TestKnownInitialisation(AttackContract):
    @pytest.fixture(
        params=(
            KnownInitialisation(records=5, restarts=2, steps=20),
            RowSpace(records=5, draws=40),
        ),
        ids=lambda attack: attack.name,
    )
    def attack(self, request: pytest.FixtureRequest) -> Attack:
        return request.param

    @pytest.fixture
    def case(self) -> Case:
        return case("known initialisation")


class TestChangeSparsity(AttackContract):
    @pytest.fixture
    def attack(self) -> Attack:
        return ChangeSparsity(records=5, trials=2000)

    @pytest.fixture
    def case(self) -> Case:
        # Weight decay would add to the change what no record brought.
        training = replace(TRAINING, weight_decay=1e-30, learning_rate=0.05, steps=30)
        return case("known initialisation", training)
