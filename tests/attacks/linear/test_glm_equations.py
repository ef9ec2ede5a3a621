"""The equations, each beside a slower way to the same answer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime, least_squares

from exhume.attacks.linear import closed_forms, gradient_noise
from exhume.training import Family

_ONE_OUTPUT = [Family.LINEAR, Family.LOGISTIC, Family.POISSON]
one_output = pytest.mark.parametrize("family", _ONE_OUTPUT, ids=lambda f: f.value)
families = pytest.mark.parametrize("family", Family, ids=lambda f: f.value)
_SEEDS = st.integers(0, 2**32 - 1)


class Problem:
    """A target of ``features``, parameters, and the gradient that the target leaves."""

    def __init__(
        self, family: Family, seed: int, *, intercept: bool = True, noise: float = 0.0
    ) -> None:
        rng = np.random.default_rng(seed)
        self.family, self.intercept, self.rng = family, intercept, rng
        self.x = rng.normal(size=5)
        outputs = 3 if family is Family.MULTINOMIAL else 1
        self.theta = rng.normal(0, 0.6, (5 + intercept, outputs))
        self.row = np.concatenate([[1.0], self.x]) if intercept else self.x
        self.weight = float(rng.uniform(0.5, 2.0))
        self.response = self._response(rng)
        self.c = self.weight * (self.response - family.mean(self.row @ self.theta))
        self.gradient = np.outer(self.row, self.c)
        self.gradient = self.gradient + noise * rng.normal(size=self.gradient.shape)

    def _response(self, rng: np.random.Generator) -> np.ndarray:
        match self.family:
            case Family.LINEAR:
                return rng.normal(0, 2, 1)
            case Family.POISSON:
                return rng.poisson(3, 1).astype(float)
            case Family.LOGISTIC:
                return rng.integers(0, 2, 1).astype(float)
            case Family.MULTINOMIAL:
                return np.eye(3)[rng.integers(3)]

    def noisy(self, deviation: float, prior_deviation: float = 1e6) -> gradient_noise.Noisy:
        size = self.gradient.size
        precision = (np.eye(size) / deviation**2).reshape(*self.gradient.shape * 2)
        prior = gradient_noise.Prior(
            np.zeros(5), np.eye(5) / prior_deviation**2, prior_deviation**2, 0.5, 3.0
        )
        return gradient_noise.Noisy(
            self.family,
            self.theta,
            self.gradient,
            precision,
            self.weight,
            prior,
            np.zeros(5, dtype=bool),
            self.intercept,
        )


@families
@settings(deadline=None, max_examples=30)
@given(seed=_SEEDS)
def test_first_row_gives_the_record(family: Family, seed: int) -> None:
    problem = Problem(family, seed)
    solution = closed_forms.with_intercept(problem.gradient)
    np.testing.assert_allclose(solution.x, problem.x, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(solution.c, problem.c, rtol=1e-12)


@one_output
@settings(deadline=None, max_examples=30)
@given(seed=_SEEDS)
def test_refining_an_exact_gradient_changes_nothing(family: Family, seed: int) -> None:
    problem = Problem(family, seed)
    if abs(problem.c[0]) < 1e-3:
        return
    found = closed_forms.refined_residual(
        family, problem.theta, problem.gradient, float(problem.response[0]), problem.weight
    )
    np.testing.assert_allclose(found.x, problem.x, rtol=1e-9, atol=1e-9)


def _visible(family: Family, noise: float, count: int) -> list[Problem]:
    """Problems whose residual is well above the noise."""
    problems = (Problem(family, seed, noise=noise) for seed in range(10 * count))
    return [p for p in problems if abs(p.c[0]) >= 0.1][:count]


@one_output
@pytest.mark.parametrize("which", range(8))
def test_refining_is_least_squares(family: Family, which: int) -> None:
    """Beside scipy's least_squares over x and the posterior's own descent with a flat prior."""
    problem = _visible(family, 1e-3, 8)[which]
    response = float(problem.response[0])
    fast = closed_forms.refined_residual(
        family, problem.theta, problem.gradient, response, problem.weight
    )

    def misses(x: np.ndarray) -> np.ndarray:
        row = np.concatenate([[1.0], x])
        c = problem.weight * (response - family.mean(row @ problem.theta))
        return (np.outer(row, c) - problem.gradient).ravel()

    slow = least_squares(misses, problem.x, xtol=1e-15, ftol=1e-15, gtol=1e-15)
    np.testing.assert_allclose(fast.x, slow.x, rtol=1e-6, atol=1e-7)
    fit = gradient_noise.fit(problem.noisy(1e-3), problem.x, problem.response, free_response=False)
    np.testing.assert_allclose(fast.x, fit.x, rtol=1e-5, atol=1e-6)


@one_output
def test_refining_beats_the_first_row(family: Family) -> None:
    """With y known, the intercept's equation is not the only one to tell the residual."""
    plain, refined = [], []
    for problem in _visible(family, 1e-4, 200):
        first = closed_forms.with_intercept(problem.gradient).x
        second = closed_forms.refined_residual(
            family, problem.theta, problem.gradient, float(problem.response[0]), problem.weight
        ).x
        plain.append(np.sum((first - problem.x) ** 2))
        refined.append(np.sum((second - problem.x) ** 2))
    assert np.mean(refined) < np.mean(plain)


def test_refining_with_all_slopes_zero() -> None:
    """A model that predicts one constant: the residual is known without any search."""
    theta = np.array([[0.3], [0.0], [0.0]])
    c = 1.0 - 1.0 / (1.0 + np.exp(-0.3))
    gradient = np.outer([1.0, 3.0, -2.0], [c])
    found = closed_forms.refined_residual(Family.LOGISTIC, theta, gradient, 1.0, 1.0)
    np.testing.assert_allclose(found.x, [3.0, -2.0], rtol=1e-12)


@one_output
@settings(deadline=None, max_examples=60)
@given(seed=_SEEDS)
def test_without_intercept_one_solution_is_the_record(family: Family, seed: int) -> None:
    problem = Problem(family, seed, intercept=False)
    if abs(problem.c[0]) < 1e-3:
        return
    found = closed_forms.without_intercept(
        family, problem.theta, problem.gradient, float(problem.response[0]), problem.weight
    )
    assert 1 <= len(found) <= 2
    # Near the turning point both roots meet, and a root is only known to half the digits.
    score = float(problem.x @ problem.theta[:, 0])
    bend = problem.c[0] - problem.weight * float(family.slope(np.array([score]))[0]) * score
    tolerance = 1e-7 if abs(bend) > 1e-2 else 1e-3
    gaps = [np.abs(s.x - problem.x).max() for s in found]
    assert min(gaps) <= tolerance * (1 + np.abs(problem.x).max())
    for solution in found:
        again = problem.weight * (problem.response - family.mean(solution.x @ problem.theta))
        np.testing.assert_allclose(again, solution.c, rtol=1e-5, atol=1e-7)


@settings(deadline=None, max_examples=60)
@given(seed=_SEEDS, units=st.sampled_from([1e-4, 1.0, 1e4]))
def test_softmax_without_intercept(seed: int, units: float) -> None:
    """The right label fits to rounding in any units; a wrong one does not."""
    problem = Problem(Family.MULTINOMIAL, seed, intercept=False)
    if np.linalg.norm(problem.c) < 1e-3:
        return
    gradient, theta = problem.gradient * units, problem.theta / units
    misfits = []
    for response in np.eye(3):
        solution, misfit = closed_forms.without_intercept_multinomial(
            theta, gradient, response, problem.weight
        )
        misfits.append(misfit)
        if np.array_equal(response, problem.response):
            assert misfit <= 1e-9
            np.testing.assert_allclose(solution.x / units, problem.x, rtol=1e-5, atol=1e-6)
    assert int(np.argmin(misfits)) == int(np.argmax(problem.response))


def test_linear_roots_of_theorem_8() -> None:
    """s(y − s) = q has the roots s and y − s: their c are y − s and s."""
    for y, s in ((3.0, 2.8), (-1.0, 0.25), (0.0, 0.7), (2.0, 1.0)):
        assert sorted(closed_forms._linear_scores(y, s * (y - s))) == pytest.approx(
            sorted({s, y - s}), abs=1e-7
        )


@pytest.mark.parametrize("intercept", [True, False], ids=["intercept", "no intercept"])
@pytest.mark.parametrize(
    ("family", "free_response"),
    [*((family, False) for family in Family), (Family.LINEAR, True), (Family.POISSON, True)],
    ids=lambda value: value.value if isinstance(value, Family) else f"y free: {value}",
)
def test_slope_of_the_posterior(family: Family, intercept: bool, free_response: bool) -> None:
    """The normal equations' slope beside finite differences of the cost."""
    problem = Problem(family, 3, intercept=intercept, noise=0.1)
    noisy = problem.noisy(0.7, prior_deviation=1.3)
    mixing = problem.rng.normal(size=(problem.gradient.size,) * 2)
    precision = (mixing @ mixing.T).reshape(noisy.precision.shape)
    noisy = replace(noisy, precision=precision)
    x, y = problem.x + 0.3, problem.response + 0.2
    free = np.arange(5)
    hessian, slope = gradient_noise._normal_equations(noisy, x, y, free, free_response)

    def cost(unknown: np.ndarray) -> float:
        response = unknown[5:] if free_response else y
        return gradient_noise._cost(noisy, unknown[:5], response, free_response)

    at = np.concatenate([x, y]) if free_response else x
    np.testing.assert_allclose(slope, approx_fprime(at, cost, 1e-7), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(hessian, _slow_hessian(noisy, x, y, free_response), rtol=1e-6)


def _slow_hessian(
    noisy: gradient_noise.Noisy, x: np.ndarray, y: np.ndarray, free_response: bool
) -> np.ndarray:
    """JᵀPJ and the prior's own, with J of the residual by central differences."""

    def residual(unknown: np.ndarray) -> np.ndarray:
        response = unknown[5:] if free_response else y
        return gradient_noise._residual(noisy, unknown[:5], response).ravel()

    at = np.concatenate([x, y]) if free_response else x
    step = 1e-6
    jacobian = np.stack(
        [(residual(at + step * e) - residual(at - step * e)) / (2 * step) for e in np.eye(len(at))],
        axis=1,
    )
    size = jacobian.shape[0]
    hessian = jacobian.T @ noisy.precision.reshape(size, size) @ jacobian
    hessian[:5, :5] += noisy.prior.precision
    if free_response:
        hessian[5, 5] += noisy.prior.response_deviation**-2
    return hessian


def test_fixed_features_stay_fixed() -> None:
    problem = Problem(Family.LOGISTIC, 5, noise=0.01)
    noisy = replace(problem.noisy(0.01), fixed=np.array([True, False, False, True, False]))
    start = problem.x + np.array([0.5, 0.1, 0.1, -0.5, 0.1])
    fit = gradient_noise.fit(noisy, start, problem.response, free_response=False)
    assert fit.x[[0, 3]].tolist() == start[[0, 3]].tolist()
    assert fit.variance[[0, 3]].tolist() == [0.0, 0.0]
    assert (fit.variance[[1, 2, 4]] > 0).all()


@families
def test_the_fit_is_a_minimum(family: Family) -> None:
    """No nearby point is cheaper, and the stated variance is the inverse curvature's diagonal."""
    for seed in range(5):
        problem = Problem(family, seed, noise=0.05)
        noisy = problem.noisy(0.05, prior_deviation=1.0)
        fit = gradient_noise.fit(noisy, np.zeros(5), problem.response, free_response=False)
        assert fit.converged
        best = gradient_noise._cost(noisy, fit.x, fit.response, False)
        for _ in range(50):
            other = fit.x + 1e-2 * problem.rng.normal(size=5)
            assert gradient_noise._cost(noisy, other, fit.response, False) >= best - 1e-6


def test_posterior_of_a_linear_problem_by_hand() -> None:
    """No slopes, one output: g = (1, x)·c is linear in x, and the posterior is a textbook one.

    Precision c²/σ² + 1/τ², mean (c·g/σ²) / precision: Gaussian likelihood times Gaussian prior.
    """
    theta = np.zeros((4, 1))
    gradient = np.array([[2.0], [1.0], [-3.0], [0.5]])
    sigma, tau = 0.5, 2.0
    noisy = gradient_noise.Noisy(
        Family.LINEAR,
        theta,
        gradient,
        (np.eye(4) / sigma**2).reshape(4, 1, 4, 1),
        1.0,
        gradient_noise.Prior(np.zeros(3), np.eye(3) / tau**2, tau**2, 0.0, 1.0),
        np.zeros(3, dtype=bool),
        True,
    )
    fit = gradient_noise.fit(noisy, np.zeros(3), np.array([2.0]), free_response=False)
    precision = 2.0**2 / sigma**2 + 1 / tau**2
    np.testing.assert_allclose(fit.x, 2.0 * gradient[1:, 0] / sigma**2 / precision, rtol=1e-8)
    np.testing.assert_allclose(fit.variance, 1 / precision, rtol=1e-12)
