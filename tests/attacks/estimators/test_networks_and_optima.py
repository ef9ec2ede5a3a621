"""Records out of fitted networks and robust linear models: epochs, first losses, optima."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.linear_model import (
    ElasticNet,
    HuberRegressor,
    Lars,
    Lasso,
    LassoLars,
    RANSACRegressor,
)
from sklearn.naive_bayes import CategoricalNB
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from tests.attacks.estimators.small import attacked, distance, table

from exhume.attacks import Refit
from exhume.attacks.estimators.first_loss import epochs_of, first_loss
from exhume.attacks.estimators.network_gradient import FittedNetwork
from exhume.attacks.estimators.optimality import optimal_record
from exhume.attacks.estimators.prior_mean import PriorMean
from exhume.attacks.estimators.refit import FittedRelease
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Status
from exhume.protocol.records import Records
from exhume.training.estimator import Estimator

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def problem(template, kind: str, own: Records | None = None) -> tuple[FittedRelease, Records]:
    """Return what an adversary sees of a fit with one target, and the target."""
    known, first = table(kind, 1)
    own = first if own is None else own
    estimator = Estimator(template)
    release = estimator.publish(known.with_record(own), rng=np.random.default_rng(0))
    knowledge = Knowledge(record_shape=own.record_shape, training=estimator, fixed_set=known)
    return FittedRelease(release.parameters, estimator, known, knowledge), own


@pytest.mark.parametrize("template", [Lars(), HuberRegressor()], ids=["lars", "huber"])
def test_optima_show_the_missing_record(template):
    pipeline = make_pipeline(StandardScaler(), template)
    answers, truth, _ = attacked(Refit(fits=100), pipeline, "numbers", 3)
    known, _ = table("numbers")
    for answer, x in zip(answers, truth.x, strict=True):
        assert answer.status is Status.CONVERGED
        assert distance(answer.samples[0], x, known) < 1e-2


def test_an_outlier_of_ransac_is_not_in_its_model():
    known, own = table("numbers", 8)
    template = make_pipeline(StandardScaler(), RANSACRegressor(random_state=0))
    told = []
    for place in range(len(own)):
        given, _ = problem(template, "numbers", own.take([place]))
        found, inside = optimal_record(given), given.attributes["steps.1.1.inlier_mask_"][-1]
        assert (found is not None) == bool(inside)
        told.append(found is not None)
        if found is not None:
            assert distance(found[0], own.x[place], known) < 1e-3
            assert found[1] == pytest.approx(own.labels[place], rel=1e-3)
    assert set(told) == {True, False}


def test_records_beyond_every_margin_are_not_invented():
    found = [
        optimal_record(problem(make_pipeline(StandardScaler(), LinearSVC(C=c)), "classes")[0])
        for c in (1e-4, 100.0)
    ]
    # With a weak penalty, no record of this table violates a margin.
    assert found[0] is not None
    assert found[1] is None


@pytest.mark.parametrize("activation", ["relu", "tanh", "logistic", "identity"])
@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_the_gradient_is_scikit_learns(activation, kind):
    known, _ = table(kind)
    rows = (known.x - known.x.mean(axis=0)) / known.x.std(axis=0)
    make = MLPClassifier if kind == "classes" else MLPRegressor
    settings = {"activation": activation, "random_state": 0, "alpha": 0.5, "batch_size": len(rows)}
    model = make(
        hidden_layer_sizes=(6, 4), solver="sgd", momentum=0.0, max_iter=1, shuffle=False, **settings
    )
    rate = 1e-6
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = make(
            hidden_layer_sizes=(6, 4),
            solver="sgd",
            max_iter=1,
            learning_rate_init=1e-300,
            **settings,
        )
        start.fit(rows, known.labels)
        model.set_params(learning_rate_init=rate).fit(rows, known.labels)
    numbers = {f"coefs_.{i}": w for i, w in enumerate(start.coefs_)}
    numbers |= {f"intercepts_.{i}": b for i, b in enumerate(start.intercepts_)}
    classes = np.unique(known.labels) if kind == "classes" else None
    network = FittedNetwork.read(start, numbers, classes)
    weight, bias, last = network.first_and_last(rows, known.labels)
    scale = len(rows) / rate
    moved = [
        (start.coefs_[0] - model.coefs_[0]),
        *(
            a - b
            for a, b in (
                (start.intercepts_[0], model.intercepts_[0]),
                (start.intercepts_[-1], model.intercepts_[-1]),
            )
        ),
    ]
    # A step of a millionth leaves ten digits of the difference.
    for own, step in zip((weight + 0.5 * start.coefs_[0], bias, last), moved, strict=True):
        assert own == pytest.approx(step * scale, rel=1e-4, abs=1e-6 * np.abs(own).max())


def test_a_converged_network_shows_the_record():
    network = MLPClassifier(
        (4,), activation="tanh", solver="lbfgs", alpha=1.0, max_iter=3000, tol=1e-9, random_state=0
    )
    given, own = problem(make_pipeline(StandardScaler(), network), "classes")
    found = optimal_record(given)
    assert found is not None
    known, _ = table("classes")
    assert distance(found[0], own.x[0], known) < 1e-2
    assert found[1] == own.labels[0]


def test_the_first_loss_gives_the_response():
    template = make_pipeline(
        StandardScaler(), MLPRegressor(hidden_layer_sizes=(10,), max_iter=5, random_state=0)
    )
    given, own = problem(template, "numbers")
    found = first_loss(given)
    assert found is not None
    told = [side(own.x[0]) for side in found.responses()]
    assert min(abs(one - own.labels[0]) for one in told) < 1e-6


def test_mini_batches_hide_the_first_loss():
    template = MLPRegressor(hidden_layer_sizes=(10,), max_iter=5, random_state=0, batch_size=32)
    assert first_loss(problem(template, "numbers")[0]) is None


def test_trainings_that_are_compared_are_as_long():
    template = MLPClassifier((4,), max_iter=300, tol=0.1, random_state=0)
    given, _ = problem(template, "classes")
    assert epochs_of(template, given.attributes) == int(given.attributes["n_iter_"])
    longest = MLPClassifier((4,), max_iter=3, random_state=0)
    assert epochs_of(longest, problem(longest, "classes")[0].attributes) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("template", "kind"),
    [
        (MLPRegressor(hidden_layer_sizes=(8,), max_iter=60, random_state=0), "numbers"),
        (
            MLPClassifier((8,), activation="tanh", solver="sgd", max_iter=60, random_state=0),
            "classes",
        ),
        (
            MLPClassifier((8,), activation="tanh", max_iter=60, batch_size=40, random_state=0),
            "classes",
        ),
    ],
    ids=["adam", "sgd", "mini-batches"],
)
def test_networks_give_a_record_away(template, kind):
    pipeline = make_pipeline(StandardScaler(), template)
    answers, truth, nearest = attacked(Refit(fits=300), pipeline, kind, 1)
    known, _ = table(kind)
    for answer, x, limit in zip(answers, truth.x, nearest, strict=True):
        assert distance(answer.samples[0], x, known) < 0.5 * limit


def test_counts_of_categories_are_the_record():
    known, own = table("classes", 3)
    middle, spread = known.x.mean(axis=0), known.x.std(axis=0)
    steps = [
        Records(np.digitize((r.x - middle) / spread, (-1, 1)) * 1.0, r.y) for r in (known, own)
    ]
    estimator = Estimator(CategoricalNB())
    for place in range(3):
        target = steps[1].take([place])
        release = estimator.publish(steps[0].with_record(target), rng=np.random.default_rng(0))
        told = Knowledge(record_shape=own.record_shape, training=estimator, fixed_set=steps[0])
        (answer,) = Refit().reconstruct_each([release], [told], rngs=[np.random.default_rng(0)])
        assert answer.samples[0] == pytest.approx(target.x[0], abs=1e-9)
        assert answer.labels[0] == target.labels[0]


@pytest.mark.parametrize("template", [Lasso(), ElasticNet(), LassoLars()])
def test_an_active_set_shows_its_columns(template):
    given, own = problem(make_pipeline(StandardScaler(), template), "numbers")
    known, _ = table("numbers")
    found = optimal_record(given)
    assert found is not None
    active = given.attributes["steps.1.1.coef_"] != 0
    assert 3 <= active.sum() <= 10
    apart = np.abs(found[0] - own.x[0]) / known.x.std(axis=0)
    # scikit-learn's descent ends where the dual gap is small; a tenth of a deviation remains.
    assert apart[active].max() < 0.2


def test_a_box_of_a_gaussian_has_the_mean_of_a_truncated_one():
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(400, 3)) @ np.array([[1.0, 0.6, 0.0], [0.0, 0.8, 0.3], [0.0, 0.0, 1.0]])
    prior = PriorMean.of(rows)
    free = np.array([False, True, True])
    # The first column is known: the others have the Gaussian's conditional mean.
    value = prior.given(np.array([1.5, 0.0, 0.0]), ~free)
    mean, deviation = prior.within(np.where(free, -50.0, 1.5), np.where(free, 50.0, 1.5))
    covariance = np.linalg.inv(prior.precision[1:, 1:])
    assert deviation[1:] == pytest.approx(np.sqrt(np.diag(covariance)), rel=0.1)
    # 48 chains of 30 sweeps: a standard error of a few hundredths of the deviation.
    assert mean == pytest.approx(value, abs=0.12)
    # Above zero, a standard normal has the mean √(2/π).
    one = PriorMean(np.zeros(1), np.ones((1, 1)))
    assert one.within(np.zeros(1), np.full(1, 50.0))[0][0] == pytest.approx(0.798, abs=0.06)
