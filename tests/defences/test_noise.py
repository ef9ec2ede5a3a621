"""Plain noise: of the size that it says, on every number, and no guarantee."""

from __future__ import annotations

import dp_accounting
import numpy as np
import pytest
from scipy import stats
from tests.contract.cases import Case, case, model, records
from tests.contract.defence import DefenceContract

from exhume.defences import Noise
from exhume.protocol.errors import InputError
from exhume.training import Answers, Family

_DATA = records(Family.LOGISTIC)
_ANSWERS = Answers(model(Family.LOGISTIC), np.random.default_rng(1).normal(size=(400, 4)))


class TestContract(DefenceContract):
    post_processing = True

    @pytest.fixture(params=["weights", "answers"])
    def case(self, request: pytest.FixtureRequest) -> Case:
        inner = model(Family.LOGISTIC) if request.param == "weights" else _ANSWERS
        return case(request.param, Noise(inner, 0.01), _DATA)


def test_it_has_the_size_it_says() -> None:
    """2,000 draws accept σ = .3 at any usual level and reject .33."""
    rng = np.random.default_rng(0)
    clean = _ANSWERS.publish(_DATA, rng=rng).values
    drawn = [Noise(_ANSWERS, 0.3).publish(_DATA, rng=rng).values - clean for _ in range(5)]
    draws = np.concatenate(drawn).ravel()
    assert len(draws) == 2000
    assert stats.kstest(draws / 0.3, "norm").pvalue > 1e-3
    assert stats.chi2.sf(np.sum((draws / 0.33) ** 2), 2000) > 1 - 1e-3


def test_questions_are_left_alone() -> None:
    noisy = Noise(_ANSWERS, 0.3).publish(_DATA, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(noisy.queries, _ANSWERS.queries)


def test_it_promises_nothing() -> None:
    assert Noise(_ANSWERS, 1e6).event(10) == dp_accounting.NonPrivateDpEvent()


@pytest.mark.parametrize("size", [0.0, -1.0, np.nan, np.inf])
def test_a_size_is_positive(size: float) -> None:
    with pytest.raises(InputError, match="size must be a positive number"):
        Noise(_ANSWERS, size)
