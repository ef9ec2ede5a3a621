"""Tests every mechanism and defence against its contract."""

from __future__ import annotations

import dp_accounting
import pytest
from tests.contract.cases import (
    ANSWER_CASES,
    DEFENDED_CASES,
    LENGTH_CASES,
    MODEL_CASES,
    SCALER_CASES,
    Case,
)
from tests.contract.defence import DefenceContract, NoisyDefenceContract
from tests.contract.mechanism import MechanismContract

from exhume.defences import OutputPerturbation, Rounding

_MODELS = (*MODEL_CASES, *LENGTH_CASES, *SCALER_CASES[:-1])
_ROUNDED = [c for c in (*DEFENDED_CASES, *SCALER_CASES) if isinstance(c.mechanism, Rounding)]
_PERTURBED = [c for c in DEFENDED_CASES if isinstance(c.mechanism, OutputPerturbation)]


class TestGLM(MechanismContract):
    @pytest.fixture(params=_MODELS, ids=str)
    def case(self, request: pytest.FixtureRequest) -> Case:
        return request.param

    def test_a_plain_model_promises_nothing(self, case: Case) -> None:
        assert case.mechanism.event(10) == dp_accounting.NonPrivateDpEvent()


class TestAnswers(MechanismContract):
    @pytest.fixture(params=ANSWER_CASES, ids=str)
    def case(self, request: pytest.FixtureRequest) -> Case:
        return request.param


class TestRounding(DefenceContract):
    post_processing = True

    @pytest.fixture(params=_ROUNDED, ids=str)
    def case(self, request: pytest.FixtureRequest) -> Case:
        return request.param


class TestOutputPerturbation(NoisyDefenceContract):
    @pytest.fixture(params=_PERTURBED, ids=str)
    def case(self, request: pytest.FixtureRequest) -> Case:
        return request.param
