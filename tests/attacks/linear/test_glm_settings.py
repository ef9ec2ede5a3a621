"""Every family, intercept, penalty and weight: stated right it is undone, stated wrong it shows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.attacks.linear.trials import Trials, attacked
from tests.contract.cases import model, records

from exhume.attacks import GLM as Attack
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Status
from exhume.protocol.records import Records
from exhume.training import GLM, Family, Penalty

_COUNT, _TARGETS = 120, 20
_TOTAL = _COUNT - _TARGETS + 1
_PENALTIES = {
    "none": Penalty(),
    "halved": Penalty(2.0),
    "not halved": Penalty(1.0, halved=False),
    "averaged": Penalty(2.0 / _TOTAL, averaged=True),
    "averaged, not halved": Penalty(1.0 / _TOTAL, halved=False, averaged=True),
    "on the intercept": Penalty(2.0, intercept=True),
}
_SAME = ["halved", "not halved", "averaged", "averaged, not halved"]
_CLASSIFIERS = [Family.LOGISTIC, Family.MULTINOMIAL]
families = pytest.mark.parametrize("family", Family, ids=lambda f: f.value)
classifiers = pytest.mark.parametrize("family", _CLASSIFIERS, ids=lambda f: f.value)


def _restated(trials: Trials, training: GLM, fixed_set: Records | None = None) -> list[Status]:
    """Attack the same releases with another idea of how they came about."""
    knowledge = Knowledge(
        record_shape=trials.targets.record_shape,
        training=training,
        fixed_set=fixed_set or trials.fixed_set,
    )
    return [Attack().reconstruct(r, knowledge, rng=0).status for r in trials.releases]


@families
@pytest.mark.parametrize("penalty", _PENALTIES)
@pytest.mark.parametrize("intercept", [True, False], ids=["intercept", "no intercept"])
def test_every_setting_is_undone(family: Family, penalty: str, intercept: bool) -> None:
    """Without intercept the label is known; the record is then among the candidates."""
    training = replace(model(family, _PENALTIES[penalty]), intercept=intercept)
    trials = attacked(training, records(family, count=_COUNT), _TARGETS, labels_known=not intercept)
    assert np.mean(trials.best_relative_errors <= 1e-9) >= 0.9
    assert trials.labels_right.all()


@families
def test_conventions_are_one_penalty(family: Family) -> None:
    """λ‖θ‖²/2 of a sum, λ‖θ‖² of a sum, and both of a mean: one model, one answer."""
    data = records(family, count=_COUNT)
    runs = [attacked(model(family, _PENALTIES[name]), data, _TARGETS) for name in _SAME]
    for other in runs[1:]:
        for i in range(_TARGETS):
            np.testing.assert_allclose(
                runs[0].releases[i].parameters["coef"],
                other.releases[i].parameters["coef"],
                rtol=1e-9,
                atol=1e-12,
            )
            np.testing.assert_allclose(
                runs[0].found[i].samples[0], other.found[i].samples[0], rtol=1e-7, atol=1e-9
            )


@classifiers
@pytest.mark.parametrize(
    "stated",
    [
        Penalty(),
        Penalty(1.0),
        Penalty(2.002),
        Penalty(2.0, halved=False),
        Penalty(2.0, averaged=True),
        Penalty(2.0, intercept=True),
    ],
    ids=["none", "half as much", "0.1 % more", "not halved", "averaged", "on the intercept"],
)
def test_a_wrong_penalty_is_noticed(family: Family, stated: Penalty) -> None:
    trials = attacked(model(family, Penalty(2.0)), records(family, count=_COUNT), _TARGETS)
    assert trials.converged.all()
    assert set(_restated(trials, model(family, stated))) == {Status.WRONG_ASSUMPTION}


@classifiers
def test_a_wrong_fixed_set_is_noticed(family: Family) -> None:
    """One record missing, one doubled, one with another label, one entry off in the third digit."""
    data = records(family, count=_COUNT)
    trials = attacked(model(family), data, _TARGETS)
    fixed = trials.fixed_set
    x, y = fixed.x.copy(), fixed.labels.copy()
    x[3, 1] *= 1.001
    y[5] = 1 - min(y[5], 1)
    wrong = [
        fixed.take(np.arange(1, len(fixed))),
        fixed.with_record(fixed.take([0])),
        Records(x, fixed.y),
        Records(fixed.x, y),
    ]
    for records_ in wrong:
        assert set(_restated(trials, model(family), records_)) == {Status.WRONG_ASSUMPTION}


def test_a_wrong_weight_is_noticed() -> None:
    trials = attacked(model(Family.LOGISTIC), records(Family.LOGISTIC, count=_COUNT), _TARGETS)
    knowledge = Knowledge(
        record_shape=trials.targets.record_shape,
        training=trials.mechanism,
        fixed_set=trials.fixed_set,
        target_weight=1.5,
    )
    found = [Attack().reconstruct(r, knowledge, rng=0) for r in trials.releases]
    assert {r.status for r in found} == {Status.WRONG_ASSUMPTION}
    assert all("neither 0 nor 1" in r.message for r in found)


@families
def test_record_weights_are_undone(family: Family) -> None:
    plain = records(family, count=_COUNT)
    data = replace(plain, weight=np.random.default_rng(4).uniform(0.2, 3.0, _COUNT))
    trials = attacked(model(family), data, _TARGETS)
    assert (trials.relative_errors <= 1e-9).all()
    assert trials.labels_right.all()


@classifiers
def test_class_weights_are_undone(family: Family) -> None:
    weights = (0.5, 2.0) if family is Family.LOGISTIC else (0.5, 2.0, 1.0)
    training = replace(model(family), class_weights=weights)
    trials = attacked(training, records(family, count=_COUNT), _TARGETS)
    assert (trials.relative_errors <= 1e-9).all()
    assert trials.labels_right.all()


def test_averaging_over_class_weights_is_refused() -> None:
    training = replace(
        model(Family.LOGISTIC, Penalty(0.1, averaged=True)), class_weights=(0.5, 2.0)
    )
    trials = attacked(training, records(Family.LOGISTIC, count=_COUNT), 2)
    assert trials.found[0].status is Status.REFUSED
    assert "averaged over class weights" in trials.found[0].message


def test_a_class_that_only_the_target_has() -> None:
    """The exact solution still gives the record away; an unfinished solver can't be rehearsed."""
    from exhume.training import Solver

    data = records(Family.MULTINOMIAL, count=_COUNT)
    others = data.labels != 2
    lonely = Records(data.x[~others][:1], data.labels[~others][:1])
    together = Records(data.x[others], data.labels[others]).with_record(lonely)
    exact = attacked(model(Family.MULTINOMIAL), together, 1)
    assert exact.relative_errors[0] <= 1e-9
    assert exact.found[0].labels.tolist()[0] == 2
    unfinished = replace(model(Family.MULTINOMIAL), solver=Solver("lbfgs"))
    refused = attacked(unfinished, together, 1)
    assert refused.found[0].status is Status.REFUSED
    assert "class ['2']" in refused.found[0].message


def test_labels_may_be_words() -> None:
    plain = records(Family.MULTINOMIAL, count=_COUNT)
    words = np.array(["ash", "beech", "oak"])
    data = Records(plain.x, words[plain.labels])
    training = GLM(Family.MULTINOMIAL, Penalty(1.0), classes=("oak", "ash", "beech"))
    trials = attacked(training, data, _TARGETS)
    assert trials.labels_right.all()
    assert (trials.relative_errors <= 1e-9).all()
