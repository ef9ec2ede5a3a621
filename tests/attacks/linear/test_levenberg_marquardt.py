"""Levenberg–Marquardt, against minima that are known in closed form."""

from __future__ import annotations

import numpy as np
import pytest

from exhume.attacks.linear.levenberg_marquardt import Attempt, Unknowns, levenberg_marquardt


def least_squares(residual, jacobian, start, **settings):
    """Minimise half the sum of squares of ``residual``."""

    def normal_equations(at):
        matrix = jacobian(at)
        return matrix.T @ matrix, matrix.T @ residual(at)

    def cost(at):
        return 0.5 * float(residual(at) @ residual(at))

    return levenberg_marquardt(cost, normal_equations, start, **settings)


def small(attempt: Attempt) -> bool:
    return attempt.promised <= 1e-18


SETTINGS = {"damping": 1e-3, "steps": 100, "settled": small}


def test_a_quadratic_ends_at_the_normal_equations_solution():
    rng = np.random.default_rng(0)
    matrix, wanted = rng.standard_normal((8, 3)), rng.standard_normal(8)
    found = least_squares(lambda x: matrix @ x - wanted, lambda x: matrix, np.zeros(3), **SETTINGS)
    gram = matrix.T @ matrix
    assert found.converged
    np.testing.assert_allclose(found.unknowns, np.linalg.solve(gram, matrix.T @ wanted), rtol=1e-8)
    np.testing.assert_allclose(found.variance, np.diag(np.linalg.inv(gram)), rtol=1e-10)
    assert found.volume == pytest.approx(0.5 * np.linalg.slogdet(gram)[1])


def test_rosenbrocks_valley_is_followed_to_its_minimum():
    """(1 − x)² + 100(y − x²)², from the usual start (−1.2, 1): the minimum is at (1, 1)."""
    found = least_squares(
        lambda at: np.array([1.0 - at[0], 10.0 * (at[1] - at[0] ** 2)]),
        lambda at: np.array([[-1.0, 0.0], [-20.0 * at[0], 10.0]]),
        np.array([-1.2, 1.0]),
        **SETTINGS,
    )
    assert found.converged
    np.testing.assert_allclose(found.unknowns, [1.0, 1.0], rtol=1e-7)


def test_a_failed_step_is_not_taken_and_raises_the_damping():
    """Beside the slope's kink at 0 every step of |x| overshoots until the damping shortens it."""
    seen: list[Attempt] = []

    def settled(attempt: Attempt) -> bool:
        seen.append(attempt)
        return attempt.taken

    found = levenberg_marquardt(
        lambda at: float(abs(at[0])),
        lambda at: (np.array([[0.1]]), np.sign(at)),
        np.array([1.0]),
        damping=1.0,
        steps=20,
        settled=settled,
    )
    refused = [attempt for attempt in seen if not attempt.taken]
    assert [attempt.damping for attempt in refused] == pytest.approx([1.0])
    assert all(attempt.cost == 1.0 and attempt.gained < 0 for attempt in refused)
    # The next step is 1 / (0.1 · 11) long.
    assert found.unknowns == pytest.approx([1.0 - 1.0 / 1.1])


def test_a_cost_that_is_not_a_number_is_refused():
    found = levenberg_marquardt(
        lambda at: 1.0 if at[0] == 0.0 else float("nan"),
        lambda at: (np.eye(1), np.ones(1)),
        np.zeros(1),
        damping=1.0,
        steps=5,
        settled=lambda attempt: attempt.taken,
    )
    assert not found.converged
    assert found.unknowns == 0.0


@pytest.mark.parametrize("free_response", [False, True])
def test_unknowns_leave_the_rest_of_the_target_alone(free_response):
    unknowns = Unknowns(np.array([1.0, 2.0, 3.0]), np.array([4.0]), np.array([0, 2]), free_response)
    x, response = unknowns.target(unknowns.start)
    np.testing.assert_array_equal(x, [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(response, [4.0])
    x, response = unknowns.target(unknowns.start + 1.0)
    np.testing.assert_array_equal(x, [2.0, 2.0, 4.0])
    np.testing.assert_array_equal(response, [5.0 if free_response else 4.0])
