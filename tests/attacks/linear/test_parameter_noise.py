"""Noise on the parameters: where a target would have moved them, beside slower ways to say it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from tests.contract.cases import model, records

from exhume.attacks.linear import parameter_noise
from exhume.attacks.linear.read_release import Pipeline, Reading, Shared
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.records import Records
from exhume.training import Family
from exhume.training.newton import minimise

_FAMILIES = [Family.LINEAR, Family.LOGISTIC, Family.POISSON]
families = pytest.mark.parametrize("family", _FAMILIES, ids=lambda f: f.value)


def _reading(family: Family, *, noise: float, intercept: bool = True) -> tuple[Reading, Records]:
    """The last of 80 records is the target; its model's parameters carry Gaussian noise."""
    training = replace(model(family), intercept=intercept)
    data = records(family, count=80)
    fixed_set, target = data.take(np.arange(79)), data.take([79])
    shared = Shared(
        Knowledge(record_shape=(4,), training=training, fixed_set=fixed_set),
        Pipeline(training, noise, 0.0, None),
    )
    theta = minimise(training.problem(data, {}))
    theta = theta + noise * np.random.default_rng(3).normal(size=theta.shape)
    gradient, rounding = shared.problem.gradient(theta), shared.problem.rounding(theta)
    deviation = np.full(theta.shape, noise)
    return (
        Reading(
            training,
            theta,
            gradient,
            rounding,
            rounding,
            deviation,
            {},
            shared.pool,
        ),
        target,
    )


def _hypothesis(reading: Reading, response: float | None) -> parameter_noise.Hypothesis:
    return parameter_noise.Hypothesis(
        reading.prior, response, 1.0, np.zeros(4, dtype=bool), reading.prior.mean
    )


@families
@pytest.mark.parametrize("intercept", [True, False], ids=["intercept", "no intercept"])
def test_the_target_explains_its_own_displacement(family: Family, intercept: bool) -> None:
    """To first order the optimum moves by H⁻¹x̃·α: what is missed at the truth is noise alone."""
    reading, target = _reading(family, noise=1e-7, intercept=intercept)
    shared = parameter_noise.displaced(reading)
    response = float(target.labels[0])
    missed = parameter_noise._missed(shared, _hypothesis(reading, response), target.x[0], response)
    assert np.sqrt(np.mean(missed**2)) <= 3.0
    other = parameter_noise._missed(shared, _hypothesis(reading, response), -target.x[0], response)
    assert np.sqrt(np.mean(other**2)) >= 100.0


@families
def test_alpha_and_its_derivatives(family: Family) -> None:
    """Sherman–Morrison's α, its slope in x and in the response, beside finite differences."""
    reading, target = _reading(family, noise=0.01)
    shared = parameter_noise.displaced(reading)
    hypothesis = _hypothesis(reading, None)
    x, response = target.x[0] + 0.1, float(target.labels[0]) + 0.2
    alpha, slope, d_response = parameter_noise._alpha(shared, hypothesis, x, response)

    def at(unknown: np.ndarray) -> float:
        return parameter_noise._alpha(shared, hypothesis, unknown[:4], float(unknown[4]))[0]

    numerical = approx_fprime(np.append(x, response), at, 1e-7)
    np.testing.assert_allclose(np.append(slope, d_response), numerical, rtol=1e-4, atol=1e-6)

    # Slowly: the move of the optimum of all the data by one Newton step, in units of H⁻¹x̃.
    row = np.concatenate([[1.0], x])
    score = row @ reading.theta
    kappa = float(reading.model.family.slope(score)[0])
    c = response - float(reading.model.family.mean(score)[0])
    hessian = reading.problem.hessian(reading.theta)
    whole = np.linalg.inv(hessian + kappa * np.outer(row, row))
    # θ* of all data solves g(θ) = x̃c(θ): from θ, back to the fixed set's own optimum.
    expected = np.linalg.solve(hessian, reading.gradient[:, 0]) - whole @ (
        reading.gradient[:, 0] - row * c
    )
    np.testing.assert_allclose(np.linalg.solve(hessian, row) * alpha, expected, rtol=1e-8)


@pytest.mark.parametrize(
    ("family", "free"),
    [*((family, False) for family in _FAMILIES), (Family.LINEAR, True), (Family.POISSON, True)],
    ids=lambda value: value.value if isinstance(value, Family) else f"y free: {value}",
)
def test_slope_of_the_cost(family: Family, free: bool) -> None:
    reading, target = _reading(family, noise=0.05)
    shared = parameter_noise.displaced(reading)
    y = float(target.labels[0])
    hypothesis = _hypothesis(reading, None if free else y)
    x = target.x[0] + 0.2
    _, slope = parameter_noise._normal_equations(
        shared, hypothesis, x, y + 0.1 * free, np.arange(4)
    )

    def cost(unknown: np.ndarray) -> float:
        response = float(unknown[4]) if free else y
        return parameter_noise._cost(shared, hypothesis, unknown[:4], response)

    at = np.append(x, y + 0.1) if free else x
    np.testing.assert_allclose(slope, approx_fprime(at, cost, 1e-7), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("noise", [0.01, 0.05], ids=["some noise", "much noise"])
def test_the_posterior_beside_importance_sampling(noise: float) -> None:
    """A linear model, label known: mean and deviation beside a million draws from the prior."""
    reading, target = _reading(Family.LINEAR, noise=noise)
    shared = parameter_noise.displaced(reading)
    response = float(target.labels[0])
    hypothesis = _hypothesis(reading, response)
    fit = parameter_noise.explain(shared, hypothesis)
    rng = np.random.default_rng(0)
    root = np.linalg.cholesky(np.linalg.inv(reading.prior.precision))
    draws = reading.prior.mean + rng.normal(size=(400_000, 4)) @ root.T
    rows = np.hstack([np.ones((len(draws), 1)), draws])
    length = np.einsum("np,pq,nq->n", rows, shared.inverse, rows)
    c = response - rows @ reading.theta[:, 0]
    alpha = (c + rows @ shared.moved) / (1.0 + length)
    missed = alpha[:, None] * (rows @ shared.whitened.T) - shared.seen
    logs = -0.5 * np.sum(missed**2, axis=1)
    weight = np.exp(logs - logs.max())
    weight /= weight.sum()
    assert 1.0 / np.sum(weight**2) > 200.0
    mean = weight @ draws
    deviation = np.sqrt(weight @ (draws - mean) ** 2)
    assert (np.abs(fit.x - mean) <= 0.5 * deviation).all()
    np.testing.assert_allclose(np.sqrt(fit.variance), deviation, rtol=0.4)


@families
def test_more_noise_than_was_stated_shows(family: Family) -> None:
    """Parameters off by a hundred times what was stated: the attack's own doubt grows with it."""
    reading, target = _reading(family, noise=1e-3)
    boastful = replace(reading, theta_deviation=0.01 * reading.theta_deviation)
    y = float(target.labels[0])
    fit = parameter_noise.explain(
        parameter_noise.displaced(boastful), _hypothesis(boastful, y), [(target.x[0], y)]
    )
    error = np.sqrt(np.mean((fit.x - target.x[0]) ** 2))
    assert error <= 10.0 * np.sqrt(np.mean(fit.variance))


def test_parameters_that_decide_nothing() -> None:
    """Saturated beyond double precision, an unpenalised intercept has no curvature left."""
    reading, _ = _reading(Family.LOGISTIC, noise=0.1)
    far = replace(reading, theta=np.array([[1e5], [0.0], [0.0], [0.0], [0.0]]))
    assert parameter_noise.displaced(far) is None


def test_slopes_that_were_rounded_away() -> None:
    reading, target = _reading(Family.LOGISTIC, noise=0.1)
    flat = replace(reading, theta=np.array([[0.3], [0.0], [0.0], [0.0], [0.0]]))
    fit = parameter_noise.explain(
        parameter_noise.displaced(flat), _hypothesis(flat, float(target.labels[0]))
    )
    assert np.isfinite(fit.x).all()
    assert np.isfinite(fit.variance).all()
