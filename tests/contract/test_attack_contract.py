"""Every attack against the contract, on every case that it takes."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from tests.contract.attack import AttackContract
from tests.contract.cases import GLM_CASES, MODEL_CASES, SCALER_CASES, Case
from tests.contract.graph import holds_record

from exhume.attacks import GLM, Attack, Oblivious, ScalerMoments
from exhume.records import Records
from exhume.release import Release


class TestGLM(AttackContract):
    @pytest.fixture
    def attack(self) -> Attack:
        return GLM()

    @pytest.fixture(params=GLM_CASES, ids=str)
    def case(self, request: pytest.FixtureRequest) -> Case:
        return request.param


class TestScalerMoments(AttackContract):
    @pytest.fixture
    def attack(self) -> Attack:
        return ScalerMoments()

    @pytest.fixture(params=SCALER_CASES, ids=str)
    def case(self, request: pytest.FixtureRequest) -> Case:
        return request.param

    def test_a_release_without_scaler_is_refused(self, attack: Attack) -> None:
        plain = MODEL_CASES[0]
        assert "scaler" in str(attack.accepts(plain.releases[0], plain.knowledge[0]))


class TestOblivious(AttackContract):
    @pytest.fixture
    def attack(self) -> Attack:
        return Oblivious()

    @pytest.fixture(params=(*MODEL_CASES[:4], GLM_CASES[-1]), ids=str)
    def case(self, request: pytest.FixtureRequest) -> Case:
        return request.param

    @pytest.fixture
    def wrong_releases(self) -> list[Release]:
        # A guess that never looks at the release has no wrong kind of it.
        return []


class TestTheWalkItself:
    """The search for the truth must find it where it is."""

    record = np.array([0.1, 0.2, 0.3])

    @pytest.mark.parametrize(
        "holder",
        [
            Records(np.array([[9.0, 9.0, 9.0], [0.1, 0.2, 0.3]])),
            {"deep": [(np.array([[1.0, 0.1], [1.0, 0.2], [1.0, 0.3]]),)]},
            np.array([5.0, 0.1, 0.2, 0.3, 5.0], dtype=np.float32),
            np.array([[0.1, 0.2, 0.3], [1.0, 1.0, 1.0]])[1:],
            partial(print, np.array([0.1, 0.2, 0.3])),
            np.array([0.1, 0.2, 0.3]).tobytes(),
        ],
        ids=["rows", "columns, deep", "single precision", "base of a view", "bound", "bytes"],
    )
    def test_finds_a_hidden_record(self, holder: object) -> None:
        assert holds_record([holder], self.record) is not None

    def test_finds_nothing_where_nothing_is(self) -> None:
        other = np.array([[0.1, 0.2, 0.4], [0.3, 0.2, 0.1]])
        assert holds_record([{"x": Records(other)}], self.record) is None

    def test_a_sliced_fixed_set_lets_go_of_the_rest(self) -> None:
        everything = Records(np.arange(12.0).reshape(4, 3) + 0.5)
        assert holds_record([everything.take(slice(1, None))], everything.x[0]) is None
        assert holds_record([Records(everything.x[1:])], everything.x[0]) is None
