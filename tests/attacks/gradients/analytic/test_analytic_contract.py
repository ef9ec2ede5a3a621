"""The analytic attacks against the contract of every attack."""

from __future__ import annotations

import numpy as np
import pytest
from tests.attacks.gradients.analytic.gradient_cases import LONE_CASES, small_records, small_step
from tests.contract.attack import AttackContract
from tests.contract.cases import Case

from exhume.attacks import Attack
from exhume.attacks.gradients.analytic import Cocktail, FirstLayer, Imprint, Sparsity
from exhume.protocol.knowledge import Knowledge


class TestFirstLayer(AttackContract):
    @pytest.fixture
    def attack(self) -> Attack:
        return FirstLayer()

    @pytest.fixture(params=LONE_CASES, ids=str)
    def case(self, request: pytest.FixtureRequest) -> Case:
        return request.param


class TestCocktail(AttackContract):
    @pytest.fixture
    def attack(self) -> Attack:
        return Cocktail()

    @pytest.fixture(params=LONE_CASES, ids=str)
    def case(self, request: pytest.FixtureRequest) -> Case:
        return request.param


class TestSparsity(AttackContract):
    @pytest.fixture
    def attack(self) -> Attack:
        return Sparsity()

    @pytest.fixture(params=LONE_CASES, ids=str)
    def case(self, request: pytest.FixtureRequest) -> Case:
        return request.param


IMPRINT = Imprint(bins=16, measurements=2)
CRAFTED = IMPRINT.craft(
    Knowledge(record_shape=(4, 4), training=small_step(), shadow_targets=small_records(40, 1)), 0
)


class TestImprint(AttackContract):
    @pytest.fixture
    def attack(self) -> Attack:
        return IMPRINT

    @pytest.fixture(params=[0, 2])
    def case(self, request: pytest.FixtureRequest) -> Case:
        data = small_records(request.param + 3)
        fixed = data.take(np.arange(request.param))
        targets = data.take(np.arange(request.param, len(data)))
        return Case("imprinted", CRAFTED, fixed, targets, value_range=(0.0, 1.0))
