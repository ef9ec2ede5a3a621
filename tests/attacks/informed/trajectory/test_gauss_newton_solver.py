"""The solver and the prior on maps whose answers are known in closed form."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from exhume.attacks.informed.trajectory.observation import WholeVector
from exhume.attacks.informed.trajectory.one_target.gauss_newton import (
    IterationBudget,
    Level,
    ResidualProblem,
    bidiagonalise,
    gauss_newton,
)
from exhume.attacks.informed.trajectory.one_target.gaussian_prior import (
    GaussianPrior,
    SeenThroughPrior,
    pool_prior,
)
from exhume.attacks.informed.trajectory.one_target.noise import explains, most_probable
from exhume.attacks.informed.trajectory.one_target.unrolled import Path, Unrolled
from exhume.bounds.floors import van_trees_from_jacobians

DOUBLE = torch.float64


class Map(Unrolled):
    """record → A·f(record): linear where ``bend`` is 0."""

    def __init__(self, matrix: Tensor, bend: float = 0.0) -> None:
        super().__init__(WholeVector(), matrix.shape[1], torch.zeros(len(matrix), dtype=DOUBLE))
        self.matrix, self.bend = matrix, bend

    def path(self, record: Tensor) -> Path:
        return MapPath(self, record)

    def _trained(self, record: Tensor) -> Tensor:
        return self.matrix @ (record + self.bend * record**3)

    def _weightless(self, record: Tensor) -> Tensor:
        return torch.zeros(len(self.matrix), dtype=DOUBLE)


class MapPath(Path):
    def __init__(self, owner: Map, record: Tensor) -> None:
        self.unrolled, self.record, self.theta = owner, record, owner._trained(record)
        self.jacobian = owner.matrix * (1 + 3 * owner.bend * record**2)

    def push(self, initial: Tensor, record: Tensor) -> Tensor:
        return initial + self.jacobian @ record

    def pull(self, cotangent: Tensor) -> tuple[Tensor, Tensor]:
        return cotangent, self.jacobian.T @ cotangent


def drawn(rows: int, columns: int, seed: int = 0) -> Tensor:
    return torch.as_tensor(np.random.default_rng(seed).normal(size=(rows, columns)))


def problem(owner: Map, truth: Tensor, low: float = 0.0, high: float = 1.0) -> ResidualProblem:
    ones = torch.ones(owner.unknowns, dtype=DOUBLE)
    observed = owner._trained(truth)
    scale = float(observed.norm())
    return ResidualProblem(owner, owner, observed, ones > 0, low * ones, high * ones, scale)


def test_triplets_are_the_singular_ones() -> None:
    matrix = drawn(20, 6)
    path = Map(matrix).path(torch.zeros(6, dtype=DOUBLE))
    found = bidiagonalise(path, drawn(20, 1)[:, 0], torch.ones(6, dtype=DOUBLE), steps=6)
    assert torch.allclose(found.values, torch.linalg.svdvals(matrix), rtol=1e-9)
    rebuilt = found.left @ torch.diag(found.values) @ found.right.T
    assert torch.allclose(rebuilt, matrix, atol=1e-9)


def test_held_entries_have_no_direction() -> None:
    path = Map(drawn(20, 6)).path(torch.zeros(6, dtype=DOUBLE))
    moving = torch.tensor([1.0, 0, 1, 1, 0, 1], dtype=DOUBLE)
    found = bidiagonalise(path, drawn(20, 1)[:, 0], moving, steps=6)
    assert len(found.values) == 4
    assert float(found.right[[1, 4]].abs().max()) == 0.0


def test_a_map_that_stands_still_has_no_triplets() -> None:
    path = Map(torch.zeros(5, 3, dtype=DOUBLE)).path(torch.zeros(3, dtype=DOUBLE))
    assert bidiagonalise(path, torch.ones(5, dtype=DOUBLE), torch.ones(3), steps=3) is None


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 12), st.floats(0.0, 1.0))
def test_solves_what_can_be_solved(seed: int, size: int, bend: float) -> None:
    owner = Map(drawn(3 * size, size, seed), bend)
    truth = torch.as_tensor(np.random.default_rng(seed + 1).uniform(size=size))
    task = problem(owner, truth)
    found = gauss_newton(task, torch.full_like(truth, 0.5), IterationBudget(tolerance=1e-10))
    assert found.relative <= 1e-10
    assert torch.allclose(found.record, truth, atol=1e-6)
    assert list(found.history) == sorted(found.history, reverse=True)


def test_what_is_not_free_stays_and_the_box_holds() -> None:
    owner = Map(drawn(30, 8))
    truth = torch.full((8,), 0.9, dtype=DOUBLE)
    task = replace(problem(owner, truth, high=0.7), free=torch.arange(8) != 3)
    found = gauss_newton(task, torch.full((8,), 0.2, dtype=DOUBLE), IterationBudget())
    assert float(found.record[3]) == pytest.approx(0.2, abs=0)
    assert float(found.record.max()) <= 0.7
    assert found.relative > 1e-3


def test_the_error_estimate_covers_the_error() -> None:
    owner = Map(drawn(40, 8))
    truth = torch.full((8,), 0.5, dtype=DOUBLE)
    task = problem(owner, truth)
    noisy = replace(task, observed=task.observed + 1e-3 * drawn(40, 1, 5)[:, 0])
    found = gauss_newton(noisy, torch.zeros(8, dtype=DOUBLE), IterationBudget())
    error = float((found.record - truth).square().mean().sqrt())
    assert error < found.error() < 30 * error


def test_the_level_measures_in_units_of_the_record() -> None:
    matrix = torch.diag(torch.tensor([100.0, 1.0], dtype=DOUBLE))
    path = Map(matrix).path(torch.zeros(2, dtype=DOUBLE))
    residual = torch.tensor([1.0, 1.0], dtype=DOUBLE)
    level = Level.of(bidiagonalise(path, residual, torch.ones(2, dtype=DOUBLE), steps=2), 0.0)
    assert level.at(torch.tensor([100.0, 0.0], dtype=DOUBLE)) == pytest.approx(1.0, rel=1e-3)
    assert level.at(torch.tensor([0.0, 1.0], dtype=DOUBLE)) == pytest.approx(0.5, rel=1e-3)


def test_the_most_probable_record_is_the_posterior_mean() -> None:
    """Linear map, Gaussian prior and noise: (AᵀA/σ² + S⁻¹)⁻¹(Aᵀb/σ² + S⁻¹m), in closed form."""
    owner, noise = Map(drawn(30, 6)), torch.full((30,), 2.0, dtype=DOUBLE)
    rng = np.random.default_rng(3)
    pool = rng.normal(size=(50, 5)) * np.array([1.0, 0.1, 2.0, 0.5, 0.3]) + 1.0
    prior = pool_prior(pool)
    columns = torch.stack([prior.root(e) for e in torch.eye(5, dtype=DOUBLE)])
    covariance = columns @ columns.T
    label = 0.4
    truth = torch.cat([torch.as_tensor(pool[0]), torch.tensor([label], dtype=DOUBLE)])
    task = problem(owner, truth)
    observed = task.observed + noise * drawn(30, 1, 9)[:, 0]
    task = replace(task, observed=observed)
    found = most_probable(task, prior, noise, truth, iterations=10)
    design, rest = owner.matrix[:, :5], observed - owner.matrix[:, 5] * label
    information = design.T @ design / 4.0 + torch.linalg.inv(covariance)
    expected = torch.linalg.solve(
        information, design.T @ rest / 4.0 + torch.linalg.solve(covariance, prior.mean)
    )
    assert torch.allclose(found.record[:5], expected, atol=1e-6)
    assert float(found.record[5]) == label
    floor = van_trees_from_jacobians(design.numpy(), 2.0, prior_covariance=covariance.numpy())
    assert found.variance == pytest.approx(floor.value, rel=1e-6)
    assert explains(found, 30)


def test_roots_invert_and_shrinkage_keeps_every_direction_open() -> None:
    prior = pool_prior(np.random.default_rng(0).normal(size=(4, 9)))
    vector = drawn(9, 1)[:, 0]
    assert torch.allclose(prior.inverse_root(prior.root(vector)), vector)
    deviations = torch.linalg.eigvalsh(torch.stack([prior.root(e) for e in torch.eye(9).double()]))
    assert float(deviations.min()) > 0.1 * float(deviations.max())
    assert prior.variance() == pytest.approx(float(deviations.square().mean()))


def test_seen_through_a_prior_products_are_transposes() -> None:
    owner = Map(drawn(12, 5), bend=0.3)
    prior = GaussianPrior(
        torch.zeros(4, dtype=DOUBLE), torch.eye(4, 2, dtype=DOUBLE), torch.ones(2).double(), 0.5
    )
    through = SeenThroughPrior(owner, prior, torch.full((12,), 0.1, dtype=DOUBLE))
    record = drawn(5, 1)[:, 0]
    assert torch.allclose(through.whitened(through.record(record)), record)
    path = through.path(record)
    v, u = drawn(5, 1, 1)[:, 0], drawn(16, 1, 2)[:, 0]
    assert float(path.jvp(v) @ u) == pytest.approx(float(v @ path.vjp(u)), rel=1e-10)
    difference = (through.observed(record + 1e-6 * v) - through.observed(record - 1e-6 * v)) / 2e-6
    assert torch.allclose(path.jvp(v), difference, atol=1e-5)
