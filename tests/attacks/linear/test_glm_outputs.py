"""A model that only answers gives its record away as well, once it has answered enough."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.attacks.linear.trials import attacked, table
from tests.contract.cases import model, records, standardised, without_intercept

from exhume.attacks import GLM as Attack
from exhume.attacks.linear.answers_to_parameters import extract
from exhume.defences import Rounding
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Status
from exhume.protocol.records import Records
from exhume.protocol.release import Answer, Outputs
from exhume.training import GLM, Answers, Family, Penalty
from exhume.training.answers import probes

_KINDS = [
    (Family.LINEAR, Answer.SCORES),
    (Family.LINEAR, Answer.MEANS),
    (Family.LOGISTIC, Answer.SCORES),
    (Family.LOGISTIC, Answer.PROBABILITIES),
    (Family.MULTINOMIAL, Answer.SCORES),
    (Family.MULTINOMIAL, Answer.PROBABILITIES),
    (Family.POISSON, Answer.SCORES),
    (Family.POISSON, Answer.MEANS),
]
kinds = pytest.mark.parametrize(
    ("family", "answer"), _KINDS, ids=[f"{f.value} {a.value}" for f, a in _KINDS]
)


def _queries(count: int, features: int = 4) -> np.ndarray:
    return np.random.default_rng(3).normal(size=(count, features))


def _status(training: Answers, data: Records) -> tuple[Status, str]:
    found = attacked(training, data, 1).found[0]
    return found.status, found.message


@kinds
@pytest.mark.parametrize("count", [5, 6, 40], ids=lambda c: f"{c} queries")
def test_d_plus_one_answers_are_enough(family: Family, answer: Answer, count: int) -> None:
    training = Answers(model(family), _queries(count), answer)
    trials = attacked(training, records(family, count=120), 10)
    assert (trials.relative_errors <= 1e-7).all()
    assert trials.labels_right.all()
    assert trials.converged.all()


@kinds
def test_one_answer_less_is_refused(family: Family, answer: Answer) -> None:
    status, message = _status(Answers(model(family), _queries(4), answer), records(family))
    assert status is Status.REFUSED
    assert "4 answers do not determine the 5 parameters" in message


def test_real_tables_from_answers() -> None:
    """Sixty answers of models of 30 and 13 columns: still at least nine in ten to 1e-6."""
    for name, family, classes in (
        ("breast cancer", Family.LOGISTIC, (0, 1)),
        ("wine", Family.MULTINOMIAL, (0, 1, 2)),
    ):
        data = table(name)
        queries = probes(data, 60, rng=np.random.default_rng(1))
        inner = GLM(family, Penalty(10.0), classes=classes)
        for answer in (Answer.SCORES, Answer.PROBABILITIES):
            trials = attacked(Answers(inner, queries, answer), data, 12)
            assert np.mean(trials.relative_errors <= 1e-6) >= 0.9
            ratio = trials.estimates / trials.errors
            assert np.mean((ratio > 1 / 30) & (ratio < 30)) >= 0.95


def test_more_answers_help_against_rounded_ones() -> None:
    data = records(Family.LINEAR, count=120)
    errors = []
    for count in (6, 60, 600):
        training = Rounding(Answers(model(Family.LINEAR), _queries(count)), 5)
        trials = attacked(training, data, 20)
        ratio = trials.estimates / trials.errors
        assert np.mean((ratio > 1 / 30) & (ratio < 30)) >= 0.9
        errors.append(np.median(trials.errors))
    assert errors[0] > 2 * errors[1] > 4 * errors[2]


@pytest.mark.parametrize(
    ("training", "reason"),
    [
        (
            Answers(model(Family.LOGISTIC), np.tile(_queries(1), (9, 1))),
            "the queries span fewer than 5 dimensions",
        ),
        (Answers(standardised(Family.LOGISTIC), _queries(9)), "scaler's statistics are not in"),
        (
            Answers(
                replace(standardised(Family.LOGISTIC), penalty=Penalty(), intercept=False),
                _queries(9),
            ),
            "the scaler's mean shifts every answer",
        ),
        (
            Answers(model(Family.LOGISTIC), 1e4 * _queries(9), Answer.PROBABILITIES),
            "an answer is exactly 0 or 1",
        ),
    ],
    ids=["one point", "scaler and penalty", "scaler, no intercept", "saturated"],
)
def test_answers_that_do_not_determine_the_model(training: Answers, reason: str) -> None:
    status, message = _status(training, records(Family.LOGISTIC))
    assert status is Status.REFUSED
    assert reason in message


@pytest.mark.parametrize(
    ("family", "outputs", "reason"),
    [
        (
            Family.LINEAR,
            Outputs(_queries(9), np.full((9, 1), 0.5), Answer.PROBABILITIES),
            "does not answer with probabilities",
        ),
        (Family.LOGISTIC, Outputs(_queries(9), np.ones((9, 1)), Answer.MEANS), "not means"),
        (Family.LOGISTIC, Outputs(_queries(9), np.ones((9, 3))), "3 values per answer"),
        (Family.LOGISTIC, Outputs(_queries(9, 5), np.ones((9, 1))), "queries have shape (5,)"),
    ],
    ids=["probabilities", "means", "values", "queries"],
)
def test_answers_of_another_kind_are_refused(family: Family, outputs: Outputs, reason: str) -> None:
    knowledge = Knowledge(record_shape=(4,), training=model(family), fixed_set=records(family))
    found = Attack().reconstruct(outputs, knowledge, rng=0)
    assert found.status is Status.REFUSED
    assert reason in found.message


def test_an_unpenalised_scaler_drops_out() -> None:
    """Without a penalty, standardising changes nothing that answers could show."""
    plain = records(Family.LOGISTIC, count=120)
    data = Records(3.0 + 2.0 * plain.x, plain.y)
    inner = replace(standardised(Family.LOGISTIC), penalty=Penalty())
    trials = attacked(Answers(inner, 3.0 + _queries(9)), data, 10)
    assert (trials.relative_errors <= 1e-8).all()


def test_one_column_of_probabilities_will_do() -> None:
    """Some services answer with the second class's probability alone."""
    training = Answers(model(Family.LOGISTIC), _queries(9), Answer.PROBABILITIES)
    trials = attacked(training, records(Family.LOGISTIC, count=120), 3)
    for release, found in zip(trials.releases, trials.found, strict=True):
        single = replace(release, values=release.values[:, 1:])
        knowledge = Knowledge(record_shape=(4,), training=training, fixed_set=trials.fixed_set)
        again = Attack().reconstruct(single, knowledge, rng=0)
        np.testing.assert_allclose(again.samples[0], found.samples[0], rtol=1e-7)


@kinds
def test_extraction_recovers_the_parameters(family: Family, answer: Answer) -> None:
    """Against the model itself: parameters up to the softmax's gauge, deviations not too small."""
    training, data = model(family), records(family, count=120)
    theta = training.theta(training.publish(data, rng=np.random.default_rng(0)).parameters)
    release = Answers(training, _queries(12), answer).publish(data, rng=np.random.default_rng(0))
    found = extract(release, training)
    gap = found.theta - theta
    if family is Family.MULTINOMIAL:
        gap = gap - gap.mean(axis=1, keepdims=True)
    assert np.abs(gap).max() <= 1e-12
    assert (np.abs(gap) <= 30 * found.deviation).all()


def test_no_intercept_from_answers() -> None:
    training = Answers(without_intercept(Family.LOGISTIC), _queries(9))
    trials = attacked(training, records(Family.LOGISTIC, count=120), 15, labels_known=True)
    assert (trials.best_relative_errors <= 1e-7).all()


def test_saturated_probabilities_are_weighed_as_such() -> None:
    """Rounded to 9 digits, a probability near 1 tells its score a thousand times less well."""
    training, data = model(Family.LOGISTIC), records(Family.LOGISTIC, count=140)
    theta = training.theta(training.publish(data, rng=np.random.default_rng(0)).parameters)
    blur, ratios, nearest = 1e-9 / np.sqrt(12.0), [], []
    for seed in range(20):
        queries = 6.0 * np.random.default_rng(seed).normal(size=(5, 4))
        answers = Rounding(Answers(training, queries, Answer.PROBABILITIES), 9)
        release = answers.publish(data, rng=np.random.default_rng(0))
        nearest.append(float(1.0 - release.values.max()))
        found = extract(release, training, deviation=blur)
        ratios.append((found.theta - theta) / found.deviation)
    assert 0.0 < min(nearest) < 1e-3
    assert 0.5 <= np.sqrt(np.mean(np.square(ratios))) <= 2.0
