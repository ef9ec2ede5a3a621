"""Both learned attacks against the contract of attacks."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from tests.attacks.informed.learned.network_cases import ANSWERS, CASES, WEIGHTS
from tests.contract.attack import AttackContract
from tests.contract.cases import Case

from exhume.attacks import Attack
from exhume.attacks.informed.learned import Reconstructor
from exhume.attacks.informed.learned.ridge import Ridge
from exhume.protocol.release import Gradient, Outputs, Release, Update, Weights


def wrong(case: Case) -> list[Release]:
    """Of another kind, of another architecture, of other records."""
    return [
        Gradient({"1.weight": np.ones((6, 49))}, 1),
        Update({"1.weight": np.ones((6, 49))}, 1, 1),
        Weights({"layer.weight": np.ones((3, 3))}),
        Weights({}),
        Outputs(case.targets.x, np.ones((len(case.targets), 7))),
        Outputs(np.ones((4, 3, 3)), np.ones((4, 10))),
    ]


class TestRidge(AttackContract):
    @pytest.fixture
    def attack(self) -> Attack:
        return Ridge(shadows=40)

    @pytest.fixture(params=CASES, ids=str)
    def case(self, request: pytest.FixtureRequest) -> Case:
        return request.param

    @pytest.fixture
    def wrong_releases(self, case: Case) -> list[Release]:
        return wrong(case)


class TestReconstructor(AttackContract):
    @pytest.fixture
    def attack(self) -> Attack:
        return Reconstructor(shadows=40, hidden=(12,), epochs=3)

    @pytest.fixture(params=(WEIGHTS, ANSWERS, CASES[5], CASES[6]), ids=str)
    def case(self, request: pytest.FixtureRequest) -> Case:
        return request.param

    @pytest.fixture
    def wrong_releases(self, case: Case) -> list[Release]:
        return wrong(case)


def test_importing_them_does_not_import_torch() -> None:
    code = (
        "import sys, exhume.attacks.informed.learned.ridge, exhume.attacks.informed.learned;"
        "assert 'torch' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
