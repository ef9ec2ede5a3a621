"""Tests every attack against the contract, on every case that it accepts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor
from tests.contract.attack import AttackContract
from tests.contract.cases import GLM_CASES, MODEL_CASES, SCALER_CASES, Case
from tests.contract.graph import holds_record

from exhume.attacks import (
    GLM,
    Attack,
    Oblivious,
    PriorAware,
    Refit,
    ScalerMoments,
    StoredRecords,
    TreeCells,
)
from exhume.models import MLP
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.records import Records
from exhume.protocol.release import Release
from exhume.training import SGD, Batches, DPClipping, Recorded, Training
from exhume.training.estimator import Estimator


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


def _estimator(name: str, template: object, labels: type) -> Case:
    rng = np.random.default_rng(0)
    known, targets = (
        Records(rng.normal(size=(n, 3)), np.arange(n) % 2 if labels is int else rng.normal(size=n))
        for n in (24, 3)
    )
    return Case(name, Estimator(template), known, targets)


class TestRefit(AttackContract):
    @pytest.fixture
    def attack(self) -> Attack:
        return Refit(shadows=8, fits=120)

    @pytest.fixture(
        params=(
            _estimator("classes", GaussianNB(), int),
            _estimator("numbers", make_pipeline(StandardScaler(), Ridge()), float),
        ),
        ids=str,
    )
    def case(self, request: pytest.FixtureRequest) -> Case:
        return request.param


class TestTreeCells(AttackContract):
    @pytest.fixture
    def attack(self) -> Attack:
        return TreeCells()

    @pytest.fixture(
        params=(
            _estimator("forest", RandomForestClassifier(4, random_state=0), int),
            _estimator("tree", DecisionTreeRegressor(random_state=0), float),
        ),
        ids=str,
    )
    def case(self, request: pytest.FixtureRequest) -> Case:
        return request.param


class TestStoredRecords(AttackContract):
    @pytest.fixture
    def attack(self) -> Attack:
        return StoredRecords()

    @pytest.fixture(params=(_estimator("neighbours", KNeighborsClassifier(), int),), ids=str)
    def case(self, request: pytest.FixtureRequest) -> Case:
        return request.param

    def test_truth_is_out_of_reach(self, attack: Attack, case: Case) -> None:
        # This release is known to hold the record: nothing else that the attack gets may.
        for i in range(len(case.targets)):
            given = (case.knowledge[i], attack)
            assert holds_record(given, case.targets.x[i]) is None


@dataclass(frozen=True, eq=False)
class _AmongCandidates(Case):
    """The adversary has a list of possible records, one of which is the target."""

    def _knowledge(self, i: int) -> Knowledge:
        return replace(super()._knowledge(i), candidates=self.targets)


def _transcripts(name: str, training: Training) -> Case:
    rng = np.random.default_rng(0)
    known, targets = (Records(rng.normal(size=(n, 4)), rng.integers(2, size=n)) for n in (15, 3))
    return _AmongCandidates(name, Recorded(training), known, targets)


_PRIVATE = Training(MLP((4,), 2, (3,)), (0, 1), SGD(0.1), 5, clipping=DPClipping(1.0, 0.5))


class TestPriorAware(AttackContract):
    @pytest.fixture
    def attack(self) -> Attack:
        return PriorAware()

    @pytest.fixture(
        params=(
            _transcripts("full batch", _PRIVATE),
            _transcripts("poisson", replace(_PRIVATE, batches=Batches(4, None, poisson=True))),
        ),
        ids=str,
    )
    def case(self, request: pytest.FixtureRequest) -> Case:
        return request.param

    def test_truth_is_out_of_reach(self, attack: Attack, case: Case) -> None:
        # Among the candidates it must be; nothing but its place there may tell, and that is drawn.
        for i in range(len(case.targets)):
            rest = replace(case.knowledge[i], candidates=None)
            assert holds_record((case.releases[i], rest, attack), case.targets.x[i]) is None


class TestOblivious(AttackContract):
    @pytest.fixture
    def attack(self) -> Attack:
        return Oblivious()

    @pytest.fixture(params=(*MODEL_CASES[:4], GLM_CASES[-1]), ids=str)
    def case(self, request: pytest.FixtureRequest) -> Case:
        return request.param

    @pytest.fixture
    def wrong_releases(self) -> list[Release]:
        # A guess that never reads the release has no wrong kind of release.
        return []


class TestTheWalkItself:
    """The search for the truth must find it if it is reachable."""

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
