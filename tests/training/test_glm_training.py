"""The model mechanism: its settings, names, weights, scaler and answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.contract.cases import model, records, standardised

from exhume.defences import OutputPerturbation, Rounding
from exhume.protocol.errors import InputError
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.records import Records
from exhume.protocol.release import Answer, Gradient, Release
from exhume.training import GLM, Answers, Family, Penalty, Solver
from exhume.training.answers import probes
from exhume.training.glm import fitted_scaler

_RNG = np.random.default_rng
families = pytest.mark.parametrize("family", Family, ids=lambda f: f.value)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ((Family.LOGISTIC, None), "logistic model and classes=None don't agree"),
        ((Family.LINEAR, (0, 1)), "linear model and classes"),
        ((Family.LOGISTIC, (0, 1, 2)), "exactly 2 classes, got 3"),
        ((Family.MULTINOMIAL, (0,)), "at least 2 classes, got 1"),
    ],
    ids=["no classes", "needless classes", "too many", "too few"],
)
def test_settings_that_do_not_go_together(settings: tuple, reason: str) -> None:
    family, classes = settings
    with pytest.raises(InputError, match=reason):
        GLM(family, classes=classes)


def test_class_weights_go_with_classes() -> None:
    with pytest.raises(InputError, match="2 classes but 3 class weights"):
        GLM(Family.LOGISTIC, classes=(0, 1), class_weights=(1.0, 2.0, 3.0))


@pytest.mark.parametrize("strength", [-1.0, float("inf"), float("nan")])
def test_a_penalty_is_a_number_from_zero(strength: float) -> None:
    with pytest.raises(InputError, match="at least 0"):
        Penalty(strength)


def test_penalty_conventions_in_numbers() -> None:
    """λ of Σ loss + (λ/2)‖θ‖² for 50 records: 3, 6, 150, 300."""
    stated = [
        Penalty(3.0),
        Penalty(3.0, halved=False),
        Penalty(3.0, averaged=True),
        Penalty(3.0, halved=False, averaged=True),
    ]
    assert [penalty.summed(50) for penalty in stated] == [3.0, 6.0, 150.0, 300.0]


@families
def test_parameters_there_and_back(family: Family) -> None:
    for intercept in (True, False):
        training = replace(model(family), intercept=intercept)
        theta = _RNG(0).normal(size=(4 + intercept, training.outputs))
        names = training.parameters(theta)
        assert sorted(names) == (["coef", "intercept"] if intercept else ["coef"])
        assert names["coef"].shape == (training.outputs, 4)
        np.testing.assert_array_equal(training.theta(names), theta)


@families
def test_a_weight_of_two_is_a_record_twice(family: Family) -> None:
    data = records(family, count=50)
    twice = data.with_record(data.take([3, 8]))
    weight = np.ones(50)
    weight[[3, 8]] = 2.0
    one = model(family).publish(twice, rng=_RNG(0))
    other = model(family).publish(replace(data, weight=weight), rng=_RNG(0))
    np.testing.assert_allclose(one.parameters["coef"], other.parameters["coef"], rtol=1e-10)


def test_class_weights_are_record_weights() -> None:
    data = records(Family.LOGISTIC, count=50)
    training = replace(model(Family.LOGISTIC), class_weights=(0.3, 2.0))
    weight = np.array([0.3, 2.0])[data.labels]
    one = training.publish(data, rng=_RNG(0))
    other = model(Family.LOGISTIC).publish(replace(data, weight=weight), rng=_RNG(0))
    np.testing.assert_allclose(one.parameters["coef"], other.parameters["coef"], rtol=1e-12)


def test_the_scaler_is_scikit_learns() -> None:
    from sklearn.preprocessing import StandardScaler

    x = _RNG(0).normal(size=(50, 3)) * [1.0, 1e4, 1e-6] + [5.0, 0.0, 1.0]
    x = np.hstack([x, np.full((50, 1), 3.3)])
    ours, theirs = fitted_scaler(Records(x)), StandardScaler().fit(x)
    np.testing.assert_allclose(ours["scaler.mean"], theirs.mean_, rtol=1e-13)
    np.testing.assert_allclose(ours["scaler.scale"], theirs.scale_, rtol=1e-12)
    assert ours["scaler.scale"][3] == 1.0
    assert int(ours["scaler.count"]) == theirs.n_samples_seen_


@families
def test_standardising_is_training_on_standardised_records(family: Family) -> None:
    plain = records(family, count=80)
    data = Records(7.0 + 3.0 * plain.x, plain.y)
    whole = standardised(family).publish(data, rng=_RNG(0))
    x = (data.x - data.x.mean(axis=0)) / data.x.std(axis=0)
    inner = model(family).publish(Records(x, data.y), rng=_RNG(0))
    np.testing.assert_allclose(
        whole.parameters["coef"], inner.parameters["coef"], rtol=1e-9, atol=1e-12
    )


def test_records_of_any_shape_are_rows() -> None:
    data = records(Family.LINEAR)
    pictures = Records(data.x.reshape(-1, 2, 2), data.y)
    one, other = (model(Family.LINEAR).publish(d, rng=_RNG(0)) for d in (data, pictures))
    np.testing.assert_array_equal(one.parameters["coef"], other.parameters["coef"])


@families
def test_score_is_scikit_learns(family: Family) -> None:
    """Accuracy of a classifier, R² of a regression, on data that the model has not seen."""
    from sklearn.metrics import accuracy_score, r2_score

    training, data = model(family), records(family, count=200)
    release = training.publish(data.take(np.arange(100)), rng=_RNG(0))
    held_out = data.take(np.arange(100, 200))
    means = family.mean(training.design(held_out.x, {}) @ training.theta(release.parameters))
    if family.classifies:
        guess = means.argmax(axis=1) if means.shape[1] > 1 else (means[:, 0] > 0.5).astype(int)
        expected = accuracy_score(held_out.labels, guess)
    else:
        expected = r2_score(held_out.labels, means[:, 0])
    assert training.score(release, held_out) == pytest.approx(expected, rel=1e-12)


def test_publishing_each_shares_only_work() -> None:
    """Target weights, a class of its own, a fixed set too small alone: each as by itself."""
    data = records(Family.MULTINOMIAL, count=60)
    first = np.flatnonzero(data.labels == 2)
    rest = np.flatnonzero(data.labels != 2)
    cases = [
        (
            model(Family.LOGISTIC),
            replace(records(Family.LOGISTIC), weight=_RNG(0).uniform(0.5, 2.0, 63)),
            np.arange(60),
            np.arange(60, 63),
        ),
        (model(Family.MULTINOMIAL), data, rest, first[:2]),
        (model(Family.LINEAR, Penalty()), records(Family.LINEAR), np.arange(4), np.arange(4, 7)),
    ]
    for training, whole, fixed, chosen in cases:
        fixed_set, targets = whole.take(fixed), whole.take(chosen)
        each = training.publish_each(fixed_set, targets, rngs=[_RNG(0)] * len(targets))
        for i, release in enumerate(each):
            alone = training.publish(fixed_set.with_record(targets.take([i])), rng=_RNG(0))
            np.testing.assert_allclose(
                release.parameters["coef"], alone.parameters["coef"], rtol=1e-9, atol=1e-10
            )


@pytest.mark.parametrize("family", Family, ids=lambda f: f.value)
def test_pipelines_share_the_units_of_the_fixed_set(family: Family) -> None:
    """In the fixed set's units each target has a penalty of its own; its parameters are the same.

    The last target is far outside, so that its scaler differs from the fixed set's by a factor.
    """
    data = records(family, count=63)
    x = np.array([1e3, -5.0, 0.0, 1e-2]) + np.array([10.0, 1.0, 1e-3, 1e-2]) * data.x
    x[62] = x[61] + np.array([80.0, 0.0, 0.0, 0.0])
    data = Records(x, data.y)
    training = replace(model(family), standardise=True)
    fixed, targets = data.take(np.arange(60)), data.take(np.arange(60, 63))
    each = training.publish_each(fixed, targets, rngs=[_RNG(0)] * 3)
    for i, release in enumerate(each):
        alone = training.publish(fixed.with_record(targets.take([i])), rng=_RNG(0))
        assert release.parameters.keys() == alone.parameters.keys()
        for name, array in alone.parameters.items():
            np.testing.assert_allclose(release.parameters[name], array, rtol=1e-9, atol=1e-10)


def test_many_targets_go_in_chunks() -> None:
    """More targets than one chunk holds: the same releases."""
    data = records(Family.LOGISTIC, count=200)
    fixed, targets = data.take(np.arange(60)), data.take(np.arange(60, 200))
    each = model(Family.LOGISTIC).publish_each(fixed, targets, rngs=[_RNG(0)] * 140)
    assert len(each) == 140
    for i in (0, 63, 64, 139):
        alone = model(Family.LOGISTIC).publish(fixed.with_record(targets.take([i])), rng=_RNG(0))
        np.testing.assert_allclose(
            each[i].parameters["coef"], alone.parameters["coef"], rtol=1e-10, atol=1e-12
        )


def test_random_solvers_follow_their_stream() -> None:
    training = replace(model(Family.LOGISTIC), solver=Solver("saga", 1e-2, 20))
    data = records(Family.LOGISTIC)
    one, again, other = (training.publish(data, rng=_RNG(seed)) for seed in (0, 0, 1))
    assert one.parameters["coef"].tobytes() == again.parameters["coef"].tobytes()
    assert one.parameters["coef"].tobytes() != other.parameters["coef"].tobytes()


# Answers


@families
def test_answers_are_the_models(family: Family) -> None:
    """Beside the formulas: scores Xθ, probabilities that sum to one, means of the response."""
    training, data = model(family), records(family)
    queries = _RNG(1).normal(size=(6, 4))
    weights = training.publish(data, rng=_RNG(0)).parameters
    scores = queries @ weights["coef"].T + weights["intercept"]
    asked = Answers(training, queries).publish(data, rng=_RNG(0))
    np.testing.assert_allclose(asked.values, scores, rtol=1e-12)
    if family.classifies:
        told = Answers(training, queries, Answer.PROBABILITIES).publish(data, rng=_RNG(0)).values
        assert told.shape == (6, len(training.classes))
        np.testing.assert_allclose(told.sum(axis=1), 1.0, rtol=1e-14)
        logits = np.hstack([np.zeros((6, 1)), scores]) if scores.shape[1] == 1 else scores
        expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    else:
        told = Answers(training, queries, Answer.MEANS).publish(data, rng=_RNG(0)).values
        expected = np.exp(scores) if family is Family.POISSON else scores
    np.testing.assert_allclose(told, expected, rtol=1e-12)


def test_a_saturated_probability_keeps_its_small_side() -> None:
    """1 − p loses what p says of an unlikely class: both sides are computed by themselves."""
    training, data = model(Family.LOGISTIC), records(Family.LOGISTIC)
    told = Answers(training, np.full((1, 4), 200.0), Answer.PROBABILITIES)
    smaller = told.publish(data, rng=_RNG(0)).values.min()
    assert 0.0 < smaller < 1e-9


def test_answers_cost_what_the_model_costs() -> None:
    inner = OutputPerturbation(model(Family.LOGISTIC, Penalty(1.0, intercept=True)), 2.0, 5.0)
    answers = Answers(inner, np.zeros((3, 4)))
    assert answers.event(10) == inner.event(10)
    assert Answers(Rounding(model(Family.LINEAR), 3), np.zeros((3, 4))).event(10) is not None


class _Stranger(Mechanism):
    def publish(self, data: Records, *, rng: np.random.Generator) -> Release:
        return Gradient({"w": np.ones(3)}, 1)


def test_only_a_trained_model_answers() -> None:
    with pytest.raises(InputError, match="need a mechanism that trains a model"):
        Answers(_Stranger(), np.zeros((3, 4))).publish(records(Family.LINEAR), rng=_RNG(0))


def test_probes_spread_like_the_pool() -> None:
    pool = Records(_RNG(0).normal(size=(500, 2, 2)) * 3.0 + 10.0)
    asked = probes(pool, 4000, rng=_RNG(1))
    assert asked.shape == (4000, 2, 2)
    np.testing.assert_allclose(asked.mean(axis=0), pool.x.mean(axis=0), atol=0.3)
    np.testing.assert_allclose(asked.std(axis=0), 1.1 * pool.x.std(axis=0), rtol=0.06)
