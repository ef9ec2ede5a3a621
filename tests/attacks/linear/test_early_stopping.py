"""Solvers that stop early: rehearsing takes off what they left, and the attack stays honest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.attacks.linear.trials import Trials, attacked, table
from tests.contract.cases import model, records

from exhume.attacks import GLM as Attack
from exhume.attacks.linear.early_stopping import _rehearse
from exhume.attacks.linear.read_release import Pipeline, Reading, Shared
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.records import Records
from exhume.training import GLM, Family, Penalty, Solver

_BINARY = GLM(Family.LOGISTIC, Penalty(1.0), classes=(0, 1))
_WINE = GLM(Family.MULTINOMIAL, Penalty(1.0), classes=(0, 1, 2))
_RIDGE = GLM(Family.LINEAR, Penalty(1.0))
_LIBLINEAR = replace(_BINARY, penalty=Penalty(1.0, intercept=True))

# scikit-learn's default tolerance everywhere; (model, table, targets, least share to 1e-6 after).
_DEFAULTS = {
    "newton-cholesky": (_BINARY, "breast cancer", 20, 0.5),
    "newton-cg": (_BINARY, "breast cancer", 20, 0.5),
    "liblinear": (_LIBLINEAR, "breast cancer", 20, 0.4),
    "lbfgs": (_WINE, "wine", 40, 0.25),
    "lsqr": (_RIDGE, "diabetes", 20, 0.9),
    "sparse_cg": (_RIDGE, "diabetes", 20, 0.9),
}


@pytest.fixture(scope="module", params=_DEFAULTS)
def both(request: pytest.FixtureRequest) -> tuple[Trials, Trials, float]:
    """The same releases attacked without and with rehearsals."""
    training, name, count, share = _DEFAULTS[request.param]
    unfinished = replace(training, solver=Solver(request.param, 1e-4, 1000))
    without, with_ = (
        attacked(unfinished, table(name), count, attack=Attack(rehearsals=rounds))
        for rounds in (0, 12)
    )
    return without, with_, share


def test_rehearsing_finds_more(both: tuple[Trials, Trials, float]) -> None:
    without, with_, share = both
    assert np.mean(without.relative_errors <= 1e-6) == 0.0
    assert np.mean(with_.relative_errors <= 1e-6) >= share
    before, after = (np.minimum(trials.errors, 1e3) for trials in (without, with_))
    assert (after <= 3.0 * before).all()


def test_converged_means_converged(both: tuple[Trials, Trials, float]) -> None:
    """Never CONVERGED with an error above ten times the attack's own estimate."""
    for trials in both[:2]:
        overconfident = trials.converged & (trials.errors > 10.0 * trials.estimates)
        assert overconfident.mean() <= 0.05


def test_a_match_is_stated(both: tuple[Trials, Trials, float]) -> None:
    """An answer to 1e-6 trained the solver to the released parameters, and says how closely."""
    _, with_, _ = both
    for found, error in zip(with_.found, with_.relative_errors, strict=True):
        if error <= 1e-6:
            assert float(found.stats["rehearsal_mismatch"]) < 1e-6


def test_what_is_not_found_is_not_claimed(both: tuple[Trials, Trials, float]) -> None:
    _, with_, _ = both
    lost = with_.relative_errors > 0.5
    assert not with_.converged[lost].any()


@pytest.mark.parametrize(
    "solver", ["exact", "sag", "cholesky", "svd"], ids=["exact", "random", "cholesky", "svd"]
)
def test_nothing_to_rehearse(solver: str) -> None:
    """A finished solver leaves nothing to rehearse, a random one what nobody can repeat."""
    training = replace(_RIDGE, solver=Solver(solver, 1e-4))
    one, other = (
        attacked(training, table("diabetes"), 3, attack=Attack(rehearsals=rounds))
        for rounds in (0, 12)
    )
    for a, b in zip(one.found, other.found, strict=True):
        assert a.samples.tobytes() == b.samples.tobytes()
        assert "rehearsal_mismatch" not in b.stats


def test_weighted_trainings_are_rehearsed_with_their_weights() -> None:
    plain = records(Family.LOGISTIC, count=120)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, 120)
    data = Records(plain.x, plain.y, weight)
    training = replace(model(Family.LOGISTIC), solver=Solver("lbfgs", 1e-4, 1000))
    trials = attacked(training, data, 10)
    assert np.mean(trials.relative_errors <= 1e-6) >= 0.8


def test_a_tighter_tolerance_leaves_less() -> None:
    """Balle et al.'s error grows with what the solver leaves: 1e-2, 1e-6, 1e-10 in that order."""
    data, errors = records(Family.LOGISTIC, count=120), []
    for tolerance in (1e-2, 1e-6, 1e-10):
        training = replace(model(Family.LOGISTIC), solver=Solver("lbfgs", tolerance, 10_000))
        trials = attacked(training, data, 20, attack=Attack(rehearsals=0))
        errors.append(np.median(np.minimum(trials.relative_errors, 10.0)))
    assert errors[0] > 30 * errors[1] > 900 * errors[2]
    assert errors[2] < 1e-6


def test_an_absurd_candidate_is_not_rehearsed() -> None:
    """A solver given a record of 1e200 spends its whole budget on it: that is refused at once."""
    training = replace(_BINARY, solver=Solver("newton-cg", 1e-4, 1000))
    data = table("breast cancer")
    knowledge = Knowledge(record_shape=data.record_shape, training=training, fixed_set=data)
    shared = Shared(knowledge, Pipeline(training, 0.0, 0.0, None))
    theta = np.zeros((data.x.shape[1] + 1, 1))
    reading = Reading(training, theta, theta, 0.0, 0.0, theta, {}, shared.pool)
    absurd = Records(np.full((1, data.x.shape[1]), 1e200), np.array([1]))
    assert _rehearse(reading, shared, absurd) is None


def test_unfinished_softmax_is_honest() -> None:
    """Without rehearsals the several outputs of a softmax still agree on what they can't tell."""
    training = replace(_WINE, solver=Solver("newton-cg", 1e-4, 100))
    trials = attacked(training, table("wine"), 20, attack=Attack(rehearsals=0))
    assert (trials.errors[trials.converged] <= 10 * trials.estimates[trials.converged]).all()
