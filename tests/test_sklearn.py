"""Straight from scikit-learn: what an estimator stands for, and what it gives away."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import (
    ElasticNet,
    GammaRegressor,
    Lasso,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
    RidgeCV,
    SGDClassifier,
    SGDRegressor,
    TweedieRegressor,
)
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler, PolynomialFeatures, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier
from tests.contract.cases import records

from exhume import sklearn as bridge
from exhume.attacks import GLM as Attack
from exhume.protocol.errors import InputError
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.records import Records
from exhume.training import GLM, Family, Penalty, Solver

_TARGET = 17


def _data(family: Family) -> tuple[np.ndarray, np.ndarray]:
    data = records(family, count=120)
    return np.array(data.x), np.array(data.labels)


def _attack(estimator: Any, x: np.ndarray, y: np.ndarray) -> Reconstruction:
    """Fit on everything, hand over all but one record, and attack."""
    others = np.arange(len(x)) != _TARGET
    release, knowledge = bridge.release(estimator.fit(x, y), fixed_set=(x[others], y[others]))
    return Attack().reconstruct(release, knowledge, rng=0)


def _assert_found(found: Reconstruction, x: np.ndarray, y: np.ndarray, rtol: float) -> None:
    assert found.status is Status.CONVERGED, found.message
    gap = np.linalg.norm(found.samples[0] - x[_TARGET]) / np.linalg.norm(x[_TARGET])
    assert gap <= rtol
    if y.dtype.kind == "f":
        assert found.labels[0] == pytest.approx(y[_TARGET], rel=100 * rtol, abs=100 * rtol)
    else:
        assert found.labels[0] == y[_TARGET]


# Every estimator that is supported


@pytest.mark.parametrize("fit_intercept", [True, False], ids=["intercept", "no intercept"])
@pytest.mark.parametrize(
    "solver", ["lbfgs", "newton-cg", "newton-cholesky", "liblinear", "sag", "saga"]
)
def test_logistic_solvers(solver: str, fit_intercept: bool) -> None:
    x, y = _data(Family.LOGISTIC)
    estimator = LogisticRegression(
        solver=solver, C=0.5, tol=1e-12, max_iter=100_000, fit_intercept=fit_intercept
    )
    found = _attack(estimator, x, y)
    gaps = np.linalg.norm(found.samples - x[_TARGET], axis=1) / np.linalg.norm(x[_TARGET])
    assert gaps.min() <= 1e-5
    if fit_intercept:
        _assert_found(found, x, y, 1e-5)


@pytest.mark.parametrize("solver", ["lbfgs", "newton-cg", "newton-cholesky", "sag", "saga"])
def test_softmax_solvers(solver: str) -> None:
    x, y = _data(Family.MULTINOMIAL)
    estimator = LogisticRegression(solver=solver, tol=1e-12, max_iter=100_000)
    _assert_found(_attack(estimator, x, y), x, y, 1e-5)


def test_liblinear_penalises_its_intercept() -> None:
    """Taken for any other solver, its penalty on the intercept shows as a contradiction."""
    x, y = _data(Family.LOGISTIC)
    estimator = LogisticRegression(solver="liblinear", tol=1e-12, max_iter=100_000).fit(x, y)
    assert bridge.training(estimator).penalty == Penalty(1.0, intercept=True)
    others = np.arange(len(x)) != _TARGET
    release, knowledge = bridge.release(estimator, fixed_set=(x[others], y[others]))
    wrong = replace(bridge.training(estimator), penalty=Penalty(1.0), solver=Solver())
    found = Attack().reconstruct(release, replace(knowledge, training=wrong), rng=0)
    assert found.status is Status.WRONG_ASSUMPTION


@pytest.mark.parametrize("fit_intercept", [True, False], ids=["intercept", "no intercept"])
@pytest.mark.parametrize("solver", ["auto", "svd", "cholesky", "lsqr", "sparse_cg", "sag", "saga"])
def test_ridge_solvers(solver: str, fit_intercept: bool) -> None:
    x, y = _data(Family.LINEAR)
    estimator = Ridge(
        alpha=2.0, solver=solver, tol=1e-13, max_iter=100_000, fit_intercept=fit_intercept
    )
    if fit_intercept:
        _assert_found(_attack(estimator, x, y), x, y, 1e-6)
        return
    others = np.arange(len(x)) != _TARGET
    release, knowledge = bridge.release(
        estimator.fit(x, y), fixed_set=(x[others], y[others]), label=y[_TARGET]
    )
    found = Attack().reconstruct(release, knowledge, rng=0)
    assert np.abs(found.samples - x[_TARGET]).max(axis=1).min() <= 1e-6


def test_least_squares() -> None:
    x, y = _data(Family.LINEAR)
    _assert_found(_attack(LinearRegression(), x, y), x, y, 1e-9)


@pytest.mark.parametrize("solver", ["lbfgs", "newton-cholesky"])
def test_poisson_solvers(solver: str) -> None:
    x, y = _data(Family.POISSON)
    estimator = PoissonRegressor(alpha=0.1, solver=solver, tol=1e-10, max_iter=10_000)
    _assert_found(_attack(estimator, x, y), x, y, 1e-5)


@pytest.mark.parametrize(
    ("estimator", "family"),
    [
        (LogisticRegression(), Family.LOGISTIC),
        (LogisticRegression(solver="newton-cholesky"), Family.MULTINOMIAL),
        (Ridge(), Family.LINEAR),
        (LinearRegression(), Family.LINEAR),
        (PoissonRegressor(), Family.POISSON),
    ],
    ids=lambda value: value.value if isinstance(value, Family) else type(value).__name__,
)
def test_pipelines_leak_through_their_scaler(estimator: Any, family: Family) -> None:
    """Default tolerances, raw units: whatever the solver left, the scaler's mean tells."""
    x, y = _data(family)
    raw = 100.0 + np.array([50.0, 1.0, 0.1, 5.0]) * x
    found = _attack(make_pipeline(StandardScaler(), estimator), raw, y)
    exact = isinstance(estimator, LinearRegression | Ridge)
    assert found.stats["how"] == ("closed form" if exact else "scaler's mean")
    np.testing.assert_allclose(found.samples[0], raw[_TARGET], rtol=1e-11)
    if family.classifies:
        assert found.labels[0] == y[_TARGET]


def test_a_pipeline_of_one_step_is_that_step() -> None:
    x, y = _data(Family.LINEAR)
    _assert_found(_attack(Pipeline([("ridge", Ridge())]), x, y), x, y, 1e-9)


def test_class_weights() -> None:
    x, y = _data(Family.LOGISTIC)
    estimator = LogisticRegression(
        class_weight={0: 3.0, 1: 0.5}, solver="newton-cholesky", tol=1e-12
    )
    _assert_found(_attack(estimator, x, y), x, y, 1e-9)
    partial = LogisticRegression(class_weight={1: 0.5}, solver="newton-cholesky", tol=1e-12)
    assert bridge.training(partial.fit(x, y)).class_weights == (1.0, 0.5)
    _assert_found(_attack(partial, x, y), x, y, 1e-9)


@pytest.mark.parametrize(
    ("estimator", "family"),
    [
        (LogisticRegression(solver="newton-cholesky", tol=1e-12), Family.LOGISTIC),
        (LogisticRegression(solver="newton-cholesky", tol=1e-12), Family.MULTINOMIAL),
        (Ridge(), Family.LINEAR),
        (LinearRegression(), Family.LINEAR),
        (PoissonRegressor(alpha=0.1, solver="newton-cholesky", tol=1e-12), Family.POISSON),
    ],
    ids=lambda value: value.value if isinstance(value, Family) else type(value).__name__,
)
def test_sample_weights(estimator: Any, family: Family) -> None:
    x, y = _data(family)
    weight = np.random.default_rng(1).uniform(0.5, 3.0, len(x))
    others = np.arange(len(x)) != _TARGET
    release, knowledge = bridge.release(
        estimator.fit(x, y, sample_weight=weight),
        fixed_set=(x[others], y[others]),
        sample_weight=(weight[others], weight[_TARGET]),
    )
    _assert_found(Attack().reconstruct(release, knowledge, rng=0), x, y, 1e-8)


@pytest.mark.parametrize("kind", [object, str], ids=["objects", "strings"])
def test_string_labels(kind: type) -> None:
    x, y = _data(Family.MULTINOMIAL)
    words = np.array(["ash", "beech", "oak"])[y].astype(kind)
    estimator = LogisticRegression(solver="newton-cholesky", tol=1e-12)
    found = _attack(estimator, x, words)
    assert found.labels[0] == words[_TARGET]
    np.testing.assert_allclose(found.samples[0], x[_TARGET], rtol=1e-8)


@pytest.mark.parametrize(
    ("labels", "label"),
    [(np.array([False, True]), True), (np.array([-1, 1]), 1), (np.array([2.0, 7.0]), 7.0)],
    ids=["booleans", "signs", "floats"],
)
def test_any_two_labels(labels: np.ndarray, label: object) -> None:
    x, y = _data(Family.LOGISTIC)
    estimator = LogisticRegression(solver="newton-cholesky", tol=1e-12)
    found = _attack(estimator, x, labels[y])
    assert found.labels[0] == labels[y][_TARGET]
    others = np.arange(len(x)) != _TARGET
    _, knowledge = bridge.release(estimator, fixed_set=(x[others], labels[y][others]), label=label)
    assert knowledge.labels.tolist() == [label]


def test_an_unpenalised_logistic_regression() -> None:
    x, y = _data(Family.LOGISTIC)
    estimator = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-12)
    assert bridge.training(estimator.fit(x, y)).penalty == Penalty(0.0)
    _assert_found(_attack(estimator, x, y), x, y, 1e-8)


def test_what_is_known_is_handed_on() -> None:
    x, y = _data(Family.LOGISTIC)
    release, knowledge = bridge.release(
        LogisticRegression().fit(x, y), fixed_set=(x[1:], y[1:]), value_range=(-9.0, 9.0)
    )
    assert sorted(release.parameters) == ["coef", "intercept"]
    assert knowledge.value_range == (-9.0, 9.0)
    assert knowledge.record_shape == (4,)
    assert len(knowledge.fixed_set) == len(x) - 1


# What it stands for, beside scikit-learn itself


@pytest.mark.parametrize(
    ("model", "family"),
    [
        (GLM(Family.LOGISTIC, Penalty(2.0), classes=(0, 1)), Family.LOGISTIC),
        (GLM(Family.LOGISTIC, Penalty(0.01, averaged=True), classes=(0, 1)), Family.LOGISTIC),
        (GLM(Family.LOGISTIC, Penalty(), classes=(0, 1)), Family.LOGISTIC),
        (
            GLM(Family.LOGISTIC, Penalty(1.0), classes=(0, 1), class_weights=(2.0, 0.5)),
            Family.LOGISTIC,
        ),
        (
            GLM(Family.MULTINOMIAL, Penalty(1.0, halved=False), classes=(0, 1, 2)),
            Family.MULTINOMIAL,
        ),
        (GLM(Family.POISSON, Penalty(0.1, averaged=True)), Family.POISSON),
    ],
    ids=["summed", "averaged", "none", "class weights", "softmax", "poisson"],
)
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize("standardise", [False, True], ids=["", "standardised"])
def test_our_solver_and_theirs_agree(
    model: GLM, family: Family, weighted: bool, standardise: bool
) -> None:
    """One training, solved by Newton here and by newton-cholesky there, at a tight tolerance."""
    data = records(family, count=120)
    if weighted:
        data = replace(data, weight=np.random.default_rng(0).uniform(0.5, 2.0, 120))
    model = replace(model, standardise=standardise)
    ours = model.publish(data, rng=np.random.default_rng(0))
    solver = Solver("newton-cholesky", 1e-12, 1000)
    theirs = replace(model, solver=solver).publish(data, rng=np.random.default_rng(0))
    for name, array in ours.parameters.items():
        np.testing.assert_allclose(array, theirs.parameters[name], rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("solver", ["cholesky", "lstsq"])
def test_our_least_squares_and_theirs_agree(solver: str) -> None:
    data = records(Family.LINEAR, count=120)
    model = GLM(Family.LINEAR, Penalty(0.0 if solver == "lstsq" else 3.0))
    ours = model.publish(data, rng=np.random.default_rng(0))
    theirs = replace(model, solver=Solver(solver)).publish(data, rng=np.random.default_rng(0))
    np.testing.assert_allclose(ours.parameters["coef"], theirs.parameters["coef"], rtol=1e-10)


def test_an_estimator_rehearses_to_itself() -> None:
    """The training derived from an estimator, run on the same data, gives the same parameters."""
    for estimator, family in (
        (LogisticRegression(C=0.3, tol=1e-3), Family.LOGISTIC),
        (LogisticRegression(solver="liblinear"), Family.LOGISTIC),
        (Ridge(alpha=2.0, solver="lsqr"), Family.LINEAR),
        (PoissonRegressor(alpha=0.3), Family.POISSON),
        (LinearRegression(), Family.LINEAR),
    ):
        x, y = _data(family)
        estimator.fit(x, y)
        again = bridge.training(estimator).publish(Records(x, y), rng=np.random.default_rng(0))
        np.testing.assert_array_equal(again.parameters["coef"], np.atleast_2d(estimator.coef_))


# What is refused, with the reason


@pytest.mark.parametrize(
    ("estimator", "family", "reason"),
    [
        (
            LogisticRegression(l1_ratio=1.0, solver="liblinear"),
            Family.LOGISTIC,
            "a penalty with an L1 part",
        ),
        (
            LogisticRegression(l1_ratio=0.5, solver="saga", max_iter=10_000),
            Family.LOGISTIC,
            "a penalty with an L1 part",
        ),
        (
            LogisticRegression(class_weight="balanced"),
            Family.LOGISTIC,
            "depends on the target's own label",
        ),
        (
            LogisticRegression(solver="liblinear", intercept_scaling=10.0),
            Family.LOGISTIC,
            "intercept_scaling must be 1",
        ),
        (GammaRegressor(), Family.POISSON, "not the Gamma family's canonical one"),
        (TweedieRegressor(power=1.5), Family.POISSON, "not the canonical one"),
        (SGDClassifier(), Family.LOGISTIC, "stops after passes over the data"),
        (SGDRegressor(), Family.LINEAR, "stops after passes over the data"),
        (Lasso(), Family.LINEAR, "L1 penalty has no gradient at zero"),
        (ElasticNet(), Family.LINEAR, "L1 penalty has no gradient at zero"),
        (Ridge(positive=True), Family.LINEAR, "positive=True constrains the optimum"),
        (LinearRegression(positive=True), Family.LINEAR, "positive=True constrains the optimum"),
        (Ridge(alpha=np.array([1.0])), Family.LINEAR, "give a single alpha"),
        (RidgeCV(), Family.LINEAR, "supported: LinearRegression, Ridge"),
        (LinearSVC(), Family.LOGISTIC, "supported: LinearRegression, Ridge"),
        (DecisionTreeClassifier(), Family.LOGISTIC, "has no coefficients"),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "fit") else "",
)
@pytest.mark.filterwarnings("ignore")
def test_refused(estimator: Any, family: Family, reason: str) -> None:
    x, y = _data(family)
    y = y + 1.0 if family is Family.POISSON else y
    estimator.fit(x, y)
    with pytest.raises(InputError, match=reason.replace("(", r"\(")) as refusal:
        bridge.release(estimator, fixed_set=(x[1:], y[1:]))
    assert "\n" not in str(refusal.value)


@pytest.mark.filterwarnings("ignore")
def test_the_old_spelling_of_l1_is_refused_too() -> None:
    x, y = _data(Family.LOGISTIC)
    estimator = LogisticRegression(penalty="l1", solver="liblinear").fit(x, y)
    with pytest.raises(InputError, match="a penalty with an L1 part"):
        bridge.release(estimator, fixed_set=(x[1:], y[1:]))


@pytest.mark.filterwarnings("ignore")
def test_one_versus_rest_is_refused() -> None:
    """liblinear once fitted a binary model a class: that is several models, not one."""
    x, y = _data(Family.MULTINOMIAL)
    try:
        estimator = LogisticRegression(solver="liblinear").fit(x, y)
    except ValueError:
        # Newer versions of scikit-learn refuse by themselves.
        estimator = LogisticRegression().fit(x, y)
        estimator.solver = "liblinear"
    with pytest.raises(InputError, match="one-versus-rest"):
        bridge.training(estimator)


@pytest.mark.parametrize(
    "estimator",
    [LogisticRegression(), Ridge(), make_pipeline(StandardScaler(), Ridge())],
    ids=["logistic", "ridge", "pipeline"],
)
def test_unfitted_is_refused(estimator: Any) -> None:
    x, y = _data(Family.LOGISTIC)
    with pytest.raises(InputError, match="fit it first"):
        bridge.release(estimator, fixed_set=(x, y))


@pytest.mark.parametrize(
    ("pipeline", "reason"),
    [
        (make_pipeline(MinMaxScaler(), Ridge()), "got MinMaxScaler → Ridge; exhume.sklearn.audit"),
        (make_pipeline(PolynomialFeatures(), Ridge()), "must be StandardScaler and a linear"),
        (
            make_pipeline(StandardScaler(), PolynomialFeatures(), Ridge()),
            "must be StandardScaler and a linear",
        ),
        (make_pipeline(StandardScaler(with_mean=False), Ridge()), "with_mean=True"),
        (make_pipeline(StandardScaler(with_std=False), Ridge()), "with_std=True"),
    ],
    ids=["other scaler", "other step", "three steps", "no mean", "no deviation"],
)
def test_other_pipelines_are_refused(pipeline: Any, reason: str) -> None:
    x, y = _data(Family.LINEAR)
    with pytest.raises(InputError, match=reason):
        bridge.release(pipeline.fit(x, y), fixed_set=(x[1:], y[1:]))


@pytest.mark.parametrize(
    ("model", "labels", "own", "complaint"),
    [
        (LogisticRegression(), "yes no ja", None, "label 'ja' is none of the model's classes"),
        (LogisticRegression(), "yes no", "maybe", "label 'maybe' is none of the model's classes"),
        (Ridge(), "yes no", None, "predicts numbers, but a label is"),
        (Ridge(), None, "maybe", "predicts numbers, but a label is 'maybe'"),
    ],
    ids=["of a known record", "of the target", "text for numbers", "the target's text"],
)
def test_labels_are_checked_with_the_release(model, labels, own, complaint) -> None:
    x, y = _data(Family.LINEAR)
    classes = np.where(y > np.median(y), "yes", "no")
    model.fit(x, y if isinstance(model, Ridge) else classes)
    given = y if labels is None else np.resize(labels.split(), len(y))
    with pytest.raises(InputError, match=complaint):
        bridge.release(model, fixed_set=(x[1:], given[1:]), label=own)


def test_what_is_not_fitted_is_told_from_what_is_not_linear() -> None:
    x, y = _data(Family.LINEAR)
    with pytest.raises(InputError, match="the Ridge is not fitted: fit it first"):
        bridge.release(Ridge(), fixed_set=(x, y))
    with pytest.raises(InputError, match=r"no coefficients: exhume\.sklearn\.audit takes any"):
        bridge.release(DecisionTreeClassifier().fit(x, y > 0), fixed_set=(x[1:], y[1:]))


def test_wrong_fixed_sets_are_refused() -> None:
    x, y = _data(Family.LINEAR)
    ridge = Ridge().fit(x, y)
    with pytest.raises(InputError, match="fitted on 4 features, the fixed set has shape"):
        bridge.release(ridge, fixed_set=(x[1:, :3], y[1:]))
    with pytest.raises(InputError, match="y needs shape"):
        bridge.release(ridge, fixed_set=(x[1:], y))
    with pytest.raises(InputError, match="NaN or infinite"):
        bridge.release(ridge, fixed_set=(np.where(x[1:] > 1, np.nan, x[1:]), y[1:]))
    scaled = make_pipeline(StandardScaler(), Ridge()).fit(x, y)
    with pytest.raises(InputError, match="scaler with sample weights"):
        bridge.release(scaled, fixed_set=(x[1:], y[1:]), sample_weight=(np.ones(len(x) - 1), 1.0))


def test_several_responses_are_refused() -> None:
    x, y = _data(Family.LINEAR)
    both = LinearRegression().fit(x, np.stack([y, -y], axis=1))
    with pytest.raises(InputError, match="one response at a time"):
        bridge.release(both, fixed_set=(x[1:], y[1:]))
