"""The search over rows of a table keeps to the contract."""

from __future__ import annotations

import pytest
from tests.attacks.gradients.tables.table_batches import TableCase, batch, step
from tests.contract.attack import AttackContract
from tests.contract.cases import Case

from exhume.attacks import Attack, TabLeak


class TestTabLeak(AttackContract):
    @pytest.fixture
    def attack(self) -> Attack:
        return TabLeak(steps=20, restarts=2, changes=2)

    @pytest.fixture
    def case(self) -> Case:
        return TableCase("one row beside two known ones", step((20,)), batch(2), batch(2, 50))
