"""Newton's method: optimal, shared as alone, and clear about what has no optimum."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime
from tests.contract.cases import model, records

from exhume.protocol.errors import InputError
from exhume.protocol.records import Records
from exhume.training import GLM, Family, Penalty
from exhume.training.newton import (
    Problem,
    factorised,
    gradients_each,
    minimise,
    minimise_each,
    readings_each,
)

families = pytest.mark.parametrize("family", Family, ids=lambda f: f.value)
_RNG = np.random.default_rng


def _problem(family: Family, *, seed: int = 0, penalty: float = 0.7) -> Problem:
    """A small problem with weights and a penalty of its own on every column."""
    data = records(family, count=40, seed=seed)
    training = model(family)
    rng = _RNG(seed)
    return Problem(
        family,
        training.design(data.x, {}),
        training.responses(data.labels),
        rng.uniform(0.5, 2.0, 40),
        penalty * rng.uniform(0.5, 2.0, 5),
    )


def _theta(problem: Problem, seed: int = 1) -> np.ndarray:
    return _RNG(seed).normal(0, 0.5, problem.shape)


@families
def test_gradient_is_the_objectives(family: Family) -> None:
    problem = _problem(family)
    theta = _theta(problem)

    def objective(flat: np.ndarray) -> float:
        return problem.objective(flat.reshape(problem.shape))

    np.testing.assert_allclose(
        problem.gradient(theta).ravel(),
        approx_fprime(theta.ravel(), objective, 1e-7),
        rtol=1e-4,
        atol=1e-4,
    )


@families
def test_hessian_is_the_gradients(family: Family) -> None:
    problem = _problem(family)
    theta, step = _theta(problem), 1e-6
    columns = [
        (problem.gradient(theta + d) - problem.gradient(theta - d)).ravel() / (2 * step)
        for d in step * np.eye(theta.size).reshape(-1, *theta.shape)
    ]
    np.testing.assert_allclose(problem.hessian(theta), np.stack(columns), rtol=1e-6, atol=1e-6)


@families
def test_objective_beside_the_likelihood(family: Family) -> None:
    """Σ w·loss + ½ΣΛθ², each loss from scipy's distributions up to a constant of y."""
    from scipy import stats

    problem = _problem(family)
    one, other = _theta(problem, 1), _theta(problem, 2)

    def likelihood(theta: np.ndarray) -> float:
        means, y = family.mean(problem.design @ theta), problem.responses
        match family:
            case Family.LINEAR:
                logs = stats.norm(means).logpdf(y)[:, 0]
            case Family.LOGISTIC:
                logs = stats.bernoulli(means).logpmf(y)[:, 0]
            case Family.POISSON:
                logs = stats.poisson(means).logpmf(y)[:, 0]
            case Family.MULTINOMIAL:
                logs = np.log(np.sum(means * y, axis=1))
        penalty = 0.5 * np.sum(problem.penalty[:, None] * theta**2)
        return float(-problem.weights @ logs + penalty)

    difference = problem.objective(one) - problem.objective(other)
    assert difference == pytest.approx(likelihood(one) - likelihood(other), rel=1e-10)


@families
@pytest.mark.parametrize("penalty", [0.0, 1e-3, 1.0, 1e3])
def test_the_gradient_vanishes_to_rounding(family: Family, penalty: float) -> None:
    training = model(family, Penalty(penalty))
    problem = training.problem(records(family, count=200), {})
    theta = minimise(problem)
    left = float(np.sqrt(np.mean(problem.gradient(theta) ** 2)))
    assert left <= 4.0 * problem.rounding(theta)


@pytest.mark.parametrize(
    ("family", "penalty"),
    [
        (Family.LOGISTIC, 0.5),
        (Family.LOGISTIC, 1.0),
        (Family.LOGISTIC, 100.0),
        (Family.MULTINOMIAL, 1.0),
        (Family.POISSON, 1.0),
    ],
    ids=str,
)
def test_beside_scikit_learn(family: Family, penalty: float) -> None:
    """newton-cholesky at tol 1e-12 on the same objective: λ = 1/C, PoissonRegressor λ = nα."""
    from sklearn.linear_model import LogisticRegression, PoissonRegressor

    data = records(family, count=200)
    theta = minimise(model(family, Penalty(penalty)).problem(data, {}))
    if family is Family.POISSON:
        estimator = PoissonRegressor(
            alpha=penalty / 200, solver="newton-cholesky", tol=1e-12, max_iter=1000
        )
    else:
        estimator = LogisticRegression(
            C=1 / penalty, solver="newton-cholesky", tol=1e-12, max_iter=1000
        )
    estimator.fit(data.x, data.labels)
    np.testing.assert_allclose(theta[1:].T, np.atleast_2d(estimator.coef_), rtol=1e-8, atol=1e-9)
    gap = theta[0] - np.atleast_1d(estimator.intercept_)
    np.testing.assert_allclose(gap - gap.mean() * (gap.size > 1), 0, atol=1e-8)


def test_beside_the_normal_equations() -> None:
    data = records(Family.LINEAR, count=60)
    theta = minimise(model(Family.LINEAR, Penalty(2.0)).problem(data, {}))
    rows = np.hstack([np.ones((60, 1)), data.x])
    expected = np.linalg.solve(rows.T @ rows + np.diag([0, 2, 2, 2, 2]), rows.T @ data.labels)
    np.testing.assert_allclose(theta[:, 0], expected, rtol=1e-12)


def test_one_logistic_case_by_hand() -> None:
    """Intercept only, three ones in four: the optimum is log 3."""
    problem = Problem(
        Family.LOGISTIC,
        np.ones((4, 1)),
        np.array([[1.0], [1.0], [1.0], [0.0]]),
        np.ones(4),
        np.zeros(1),
    )
    assert minimise(problem)[0, 0] == pytest.approx(np.log(3.0), rel=1e-14)


def test_any_start_leads_to_the_one_optimum() -> None:
    for family in Family:
        problem = _problem(family)
        expected = minimise(problem)
        for seed in range(3):
            found = minimise(problem, 3.0 * _theta(problem, seed))
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-10)


@families
@pytest.mark.parametrize(
    "units",
    [[1e-9] * 4, [1e9] * 4, [1e-6, 1.0, 1e6, 1e9]],
    ids=["tiny", "huge", "mixed"],
)
def test_units_do_not_matter(family: Family, units: list[float]) -> None:
    """Columns in nanometres or light years: the same predictions, and no complaint."""
    data = records(family, count=80)
    plain = minimise(model(family, Penalty()).problem(data, {}))
    scaled = minimise(model(family, Penalty()).problem(Records(data.x * units, data.y), {}))
    np.testing.assert_allclose(scaled[1:] * np.array(units)[:, None], plain[1:], rtol=1e-9)


def test_responses_of_any_size() -> None:
    data = records(Family.LINEAR, count=80)
    plain = minimise(model(Family.LINEAR).problem(data, {}))
    for size in (1e-10, 1e12):
        scaled = minimise(model(Family.LINEAR).problem(Records(data.x, size * data.labels), {}))
        np.testing.assert_allclose(scaled / size, plain, rtol=1e-10)


# Many at once


@families
@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 2**32 - 1), size=st.sampled_from([0.1, 1.0, 30.0]))
def test_each_is_solved_as_alone(family: Family, seed: int, size: float) -> None:
    """Ordinary extra records and outliers thirty times as large as anything else."""
    problem = _problem(family, penalty=1.0)
    rng = _RNG(seed)
    rows = np.hstack([np.ones((4, 1)), size * rng.normal(size=(4, 4))])
    responses = problem.responses[rng.integers(0, 40, 4)]
    together = minimise_each(problem, rows, responses)
    assert together.shape == (4, *problem.shape)
    for row, response, theta in zip(rows, responses, together, strict=True):
        alone = Problem(
            family,
            np.vstack([problem.design, row]),
            np.vstack([problem.responses, response]),
            np.append(problem.weights, 1.0),
            problem.penalty,
        )
        expected = minimise(alone)
        # What the sums round, and what rounding the parameters themselves does to the gradient.
        hessian = alone.hessian(expected)
        own = np.finfo(np.float64).eps * np.linalg.norm(hessian, 2) * np.linalg.norm(expected)
        left = float(np.sqrt(np.mean(alone.gradient(theta) ** 2)))
        assert left <= 20.0 * alone.rounding(theta) + own
        least = float(np.linalg.eigvalsh(hessian)[0])
        assert np.linalg.norm(theta - expected) <= 100.0 * (alone.rounding(theta) + own) / least


@families
def test_many_gradients_and_roundings_beside_one_at_a_time(family: Family) -> None:
    problem = _problem(family)
    thetas = np.stack([_theta(problem, seed) for seed in range(7)])
    each = gradients_each(problem, thetas)
    again, rounding = readings_each(problem, thetas)
    for i, theta in enumerate(thetas):
        np.testing.assert_allclose(each[i], problem.gradient(theta), rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(again[i], each[i], rtol=1e-12, atol=1e-13)
        assert rounding[i] == pytest.approx(problem.rounding(theta), rel=1e-10)
        assert rounding[i] == pytest.approx(_slow_rounding(problem, theta), rel=1e-10)


def _slow_rounding(problem: Problem, theta: np.ndarray) -> float:
    """Four units in the last place of the root-mean-square coordinate, term by term."""
    left = problem.family.mean(problem.design @ theta) - problem.responses
    total = (problem.penalty[:, None] * theta) ** 2
    for row, weight, rest in zip(problem.design, problem.weights, left, strict=True):
        total = total + np.outer(row, weight * rest) ** 2
    return 4.0 * np.finfo(np.float64).eps * float(np.sqrt(total.mean()))


@families
def test_rounding_is_the_size_of_rounding(family: Family) -> None:
    """The gradient in double precision is off from the one in extended precision by about that."""
    problem = _problem(family)
    theta = _theta(problem)
    wide = [np.asarray(a, dtype=np.longdouble) for a in (problem.design, theta, problem.responses)]
    scores = wide[0] @ wide[1]
    means = {
        Family.LINEAR: lambda s: s,
        Family.LOGISTIC: lambda s: 1 / (1 + np.exp(-s)),
        Family.POISSON: np.exp,
        Family.MULTINOMIAL: lambda s: np.exp(s) / np.exp(s).sum(axis=1, keepdims=True),
    }[family](scores)
    exact = wide[0].T @ (problem.weights[:, None] * (means - wide[2]))
    exact = exact + problem.penalty[:, None] * wide[1]
    gap = float(np.sqrt(np.mean((problem.gradient(theta) - exact) ** 2)))
    assert gap <= 3.0 * problem.rounding(theta)


def test_factorised_solves_hessian_systems() -> None:
    """For a softmax without penalty, up to the gauge that the objective doesn't see."""
    for family in Family:
        problem = replace(_problem(family), penalty=np.zeros(5))
        theta = _theta(problem)
        right = problem.gradient(theta).reshape(-1, 1)
        solved = factorised(problem, theta)(right)
        np.testing.assert_allclose(problem.hessian(theta) @ solved, right, rtol=1e-7, atol=1e-8)


# What has no optimum


@pytest.mark.parametrize("classes", [(0, 1), (0, 1, 2)], ids=["logistic", "softmax"])
def test_separable_classes_without_penalty(classes: tuple[int, ...]) -> None:
    rng = _RNG(0)
    y = np.arange(60) % len(classes)
    x = rng.normal(size=(60, 3)) + 20.0 * np.eye(3)[y]
    family = Family.LOGISTIC if len(classes) == 2 else Family.MULTINOMIAL
    training = GLM(family, Penalty(), classes=classes)
    with pytest.raises(InputError, match=r"separated perfectly|not determined") as error:
        training.publish(Records(x, y), rng=rng)
    assert "add a penalty" in str(error.value)
    assert "\n" not in str(error.value)
    training = replace(training, penalty=Penalty(1.0))
    assert training.publish(Records(x, y), rng=rng).parameters["coef"].shape[1] == 3


@families
def test_more_columns_than_records_without_penalty(family: Family) -> None:
    rng = _RNG(0)
    y = np.arange(10) % 3 if family is Family.MULTINOMIAL else np.arange(10) % 2
    with pytest.raises(InputError, match=r"not determined by its data|did not converge") as error:
        model(family, Penalty()).publish(Records(rng.normal(size=(10, 30)), y), rng=rng)
    assert "add a penalty" in str(error.value)


@families
def test_redundant_columns_without_penalty(family: Family) -> None:
    data = records(family, count=60)
    for extra in (data.x[:, :1], data.x[:, :1] + data.x[:, 1:2], np.ones((60, 1))):
        doubled = Records(np.hstack([data.x, extra]), data.y)
        with pytest.raises(InputError, match="not determined by its data"):
            model(family, Penalty()).publish(doubled, rng=_RNG(0))
        assert model(family).publish(doubled, rng=_RNG(0)).parameters["coef"].shape[1] == 5


@families
def test_constant_data(family: Family) -> None:
    y = np.arange(30) % 3 if family is Family.MULTINOMIAL else np.arange(30) % 2
    with pytest.raises(InputError, match="every training record is the same"):
        model(family).publish(Records(np.full((30, 4), 2.0), y), rng=_RNG(0))


@pytest.mark.parametrize("family", [Family.LOGISTIC, Family.MULTINOMIAL], ids=["2", "3"])
def test_a_class_without_records(family: Family) -> None:
    x = _RNG(0).normal(size=(30, 4))
    with pytest.raises(InputError, match=r"no training record has class \['1'"):
        model(family).publish(Records(x, np.zeros(30, dtype=int)), rng=_RNG(0))


def test_a_label_that_is_no_class() -> None:
    data = records(Family.LOGISTIC)
    with pytest.raises(InputError, match="label 7 is not one of the model's classes"):
        model(Family.LOGISTIC).publish(
            Records(data.x, np.where(np.arange(len(data)) == 3, 7, data.labels)), rng=_RNG(0)
        )


def test_negative_counts() -> None:
    data = records(Family.POISSON)
    with pytest.raises(InputError, match=r"Poisson response can't be negative, got -1"):
        model(Family.POISSON).publish(Records(data.x, data.labels - 1.0), rng=_RNG(0))
    with pytest.raises(InputError, match=r"Poisson response can't be negative, got -1"):
        model(Family.POISSON).publish_each(
            data, Records(data.x[:1], np.array([-1.0])), rngs=[_RNG(0)]
        )


def test_values_that_overflow_are_refused() -> None:
    """A column of 1e200 squares to infinity: better no model than the zeros it started from."""
    x = 1e200 * _RNG(0).normal(size=(30, 2))
    for family in Family:
        y = np.arange(30) % 3 if family is Family.MULTINOMIAL else np.arange(30) % 2
        with np.errstate(all="ignore"), pytest.raises(InputError, match="did not converge"):
            model(family, Penalty()).publish(Records(x, y), rng=_RNG(0))


def test_no_labels() -> None:
    with pytest.raises(InputError, match="no labels"):
        model(Family.LINEAR).publish(Records(_RNG(0).normal(size=(9, 2))), rng=_RNG(0))


def test_a_flat_optimum_is_reached_not_circled() -> None:
    """Three records fitted to five digits and a weak penalty: steps end in rounding errors.

    The optimum solves λθ = 3·30·σ(−30θ) (the fourth record is at the origin, and says nothing).
    """
    from scipy.optimize import brentq
    from scipy.special import expit

    problem = Problem(
        Family.LOGISTIC,
        np.array([[30.0], [30.0], [30.0], [0.0]]),
        np.array([[1.0], [1.0], [1.0], [0.0]]),
        np.ones(4),
        np.array([1e-3]),
    )
    expected = brentq(lambda t: 1e-3 * t - 90.0 * expit(-30.0 * t), 0.0, 1.0, xtol=1e-15)
    assert minimise(problem)[0, 0] == pytest.approx(expected, rel=1e-10)
