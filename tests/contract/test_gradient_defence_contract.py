"""Tests every defence of gradients, and stacks of them, against the contract."""

from __future__ import annotations

import dp_accounting
import pytest
from tests.contract.cases import Case, case, records
from tests.contract.defence import DefenceContract, NoisyDefenceContract
from tests.contract.mechanism import MechanismContract

from exhume import defences
from exhume.models import MLP, Activation
from exhume.models.initialise import Initialisation
from exhume.protocol.mechanism import Mechanism
from exhume.training import SGD, Batches, Family
from exhume.training.gradient import GradientStep
from exhume.training.local_steps import Aggregate, LocalSteps

STEP = GradientStep(
    MLP((4,), 3, (6, 5), Activation.ELU), (0, 1, 2), Initialisation(seed=1), precision="float64"
)
LOCAL = LocalSteps(STEP, SGD(0.1), 3)


def _case(name: str, mechanism: Mechanism) -> Case:
    return case(name, mechanism, records(Family.MULTINOMIAL, count=23))


POST_PROCESSED = [
    _case("clipping", defences.Clipping(STEP, 0.3)),
    _case("record-clipping", defences.RecordClipping(STEP, 0.3)),
    _case("pruning", defences.Pruning(STEP, 0.6)),
    _case("pruning globally", defences.Pruning(STEP, 0.6, "global")),
    _case("top-k", defences.TopK(STEP, 12)),
    _case("gradient-dropout", defences.GradientDropout(STEP, 0.4)),
    _case("activation-dropout", defences.ActivationDropout(STEP, 0.4)),
    _case("sign", defences.Sign(STEP)),
    _case("quantised", defences.Quantised(STEP, 3)),
    _case("quantised at random", defences.Quantised(STEP, 3, stochastic=True)),
    _case("mixup", defences.MixUp(STEP)),
    _case("rounds of no noise", defences.Rounds(STEP, 3)),
    _case("of an update", defences.Pruning(LOCAL, 0.6)),
    _case("after clients", defences.Sign(Aggregate(defences.Clipping(STEP, 0.2), 4))),
    _case(
        "around what is private",
        defences.Pruning(defences.Noise(defences.RecordClipping(STEP, 0.3), 0.01), 0.5),
    ),
    _case(
        "dropout around what is private",
        defences.ActivationDropout(defences.DPSGD(STEP, 0.3, 0.1), 0.2),
    ),
]
PRIVATE = [
    _case("dp-sgd", defences.DPSGD(STEP, 0.3, 0.7)),
    _case("noise behind clipping", defences.Noise(defences.Clipping(STEP, 0.3), 0.5)),
    _case("noise behind records", defences.Noise(defences.RecordClipping(STEP, 0.3), 0.01)),
    _case("rounds of noise", defences.Rounds(defences.DPSGD(STEP, 0.3, 0.7), 3)),
]
MIXED = [
    _case("local dp-sgd", LocalSteps(defences.DPSGD(STEP, 0.3, 0.7), SGD(0.1), 3)),
    _case("local mixup", LocalSteps(defences.MixUp(STEP), SGD(0.1), 2, Batches(7, seed=0))),
    _case("clients that prune", Aggregate(defences.Pruning(STEP, 0.5), 3)),
]


class TestPostProcessing(DefenceContract):
    post_processing = True

    @pytest.fixture(params=POST_PROCESSED, ids=str)
    def case(self, request: pytest.FixtureRequest) -> Case:
        return request.param


class TestPrivate(NoisyDefenceContract):
    @pytest.fixture(params=PRIVATE, ids=str)
    def case(self, request: pytest.FixtureRequest) -> Case:
        return request.param

    def test_has_a_finite_guarantee(self, case: Case) -> None:
        from exhume.bounds import ceiling

        found = ceiling(case.mechanism.event(21), 0.01)
        assert found is not None
        assert 0.01 < found.gamma < 1.0


class TestStepsAndClients(MechanismContract):
    @pytest.fixture(params=MIXED, ids=str)
    def case(self, request: pytest.FixtureRequest) -> Case:
        return request.param


def test_local_steps_compose_what_each_costs() -> None:
    private = defences.DPSGD(STEP, 0.3, 0.7)
    one = dp_accounting.GaussianDpEvent(0.7)
    assert LocalSteps(private, SGD(0.1), 1).event(21) == one
    thrice = dp_accounting.SelfComposedDpEvent(one, 3)
    assert LocalSteps(private, SGD(0.1), 3).event(21) == thrice
    # A record is in one batch per epoch, whatever the number of batches.
    assert LocalSteps(private, SGD(0.1), 3, Batches(7, seed=0)).event(21) == thrice
    sampled = LocalSteps(private, SGD(0.1), 3, Batches(7, seed=None, poisson=True)).event(21)
    assert sampled == dp_accounting.SelfComposedDpEvent(
        dp_accounting.PoissonSampledDpEvent(7 / 21, one), 9
    )
    assert LocalSteps(STEP, SGD(0.1), 3).event(21) == dp_accounting.NonPrivateDpEvent()
