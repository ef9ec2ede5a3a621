"""The nearest-neighbour oracle, beside a reference that looks at one pair at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from exhume.metrics import (
    LPIPS,
    MSE,
    NCC,
    PSNR,
    RMSE,
    SSIM,
    Metric,
    Oracle,
    cost_tables,
    nearest_neighbours,
)
from exhume.protocol.errors import InputError


def reference(targets: np.ndarray, pool: np.ndarray, metric: Metric) -> Oracle:
    table = np.array([[metric(t[None], p[None])[0] for p in pool] for t in targets])
    index = table.argmax(1) if metric.higher_is_better else table.argmin(1)
    ranks = [99, 90, 50] if metric.higher_is_better else [1, 10, 50]
    percentiles = np.percentile(table, ranks, axis=1).T
    return Oracle(index, table[np.arange(len(targets)), index], percentiles, (1, 10, 50))


def assert_same(got: Oracle, expected: Oracle, *, atol: float = 1e-12) -> None:
    assert got.nearest_index.tolist() == expected.nearest_index.tolist()
    assert got.nearest_distance.tolist() == expected.nearest_distance.tolist()
    np.testing.assert_allclose(got.percentiles, expected.percentiles, rtol=1e-9, atol=atol)
    assert got.levels == expected.levels


@pytest.fixture(params=[None, 64])
def small_tables(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with tables so small that targets and pool come in many pieces."""
    if request.param is not None:
        monkeypatch.setattr(cost_tables, "TABLE_ENTRIES", request.param)


@pytest.mark.usefixtures("small_tables")
@pytest.mark.parametrize(
    "metric",
    [
        MSE(),
        MSE(scale=np.linspace(0.5, 2, 36).reshape(6, 6)),
        RMSE(),
        PSNR(value_range=(0, 1)),
        NCC(),
        SSIM(value_range=(0, 1)),
    ],
    ids=lambda metric: metric.name,
)
def test_against_the_reference(metric: Metric) -> None:
    rng = np.random.default_rng(0)
    targets, pool = rng.uniform(size=(5, 6, 6)), rng.uniform(size=(40, 6, 6))
    assert_same(nearest_neighbours(targets, pool, metric), reference(targets, pool, metric))


def test_lpips_against_the_reference(random_weights: Path) -> None:
    rng = np.random.default_rng(1)
    targets, pool = rng.uniform(size=(2, 32, 32)), rng.uniform(size=(7, 32, 32))
    metric = LPIPS(random_weights, value_range=(0, 1))
    assert_same(nearest_neighbours(targets, pool, metric), reference(targets, pool, metric))


@given(
    hnp.arrays(np.float64, (3, 4), elements=st.integers(0, 2)),
    hnp.arrays(np.float64, (9, 4), elements=st.integers(0, 2)),
)
@settings(deadline=None, max_examples=100)
def test_ties_go_to_the_first(targets: np.ndarray, pool: np.ndarray) -> None:
    assert_same(nearest_neighbours(targets, pool, MSE()), reference(targets, pool, MSE()))


@pytest.mark.parametrize("offset", [0.0, 1.0, 1e3, 1e6])
@pytest.mark.parametrize("gap", [1e-9, 1e-4])
def test_near_duplicates_far_from_the_origin(offset: float, gap: float) -> None:
    # ‖a‖² + ‖b‖² − 2⟨a, b⟩ alone would see noise here: at 1e6 it errs by about 1e-3, and the
    # true squared distances are 1e-18 and 1e-8.
    rng = np.random.default_rng(2)
    targets = rng.normal(size=(4, 20))
    shift = gap * rng.normal(size=(6, 4, 20))
    pool = np.concatenate([rng.normal(size=(30, 20)), (targets + shift).reshape(-1, 20)]) + offset
    targets = targets + offset
    assert_same(
        nearest_neighbours(targets, pool, MSE()), reference(targets, pool, MSE()), atol=1e-9
    )


def test_a_tie_but_for_rounding_goes_where_single_scores_say() -> None:
    # NCC is blind to contrast: every pool record scores the same, except for its last digits.
    rng = np.random.default_rng(4)
    targets, record = rng.normal(size=(20, 50)), rng.normal(size=50)
    pool = record * rng.uniform(0.5, 2.0, size=(60, 1))
    assert_same(nearest_neighbours(targets, pool, NCC()), reference(targets, pool, NCC()))


def test_a_target_in_the_pool_is_at_no_distance() -> None:
    pool = np.random.default_rng(3).normal(100.0, 1.0, size=(20, 8))
    found = nearest_neighbours(pool[[4, 11]], pool, MSE())
    assert found.nearest_index.tolist() == [4, 11]
    assert found.nearest_distance.tolist() == [0.0, 0.0]
    assert (found.percentiles >= 0).all()


def test_figure_three_on_a_pool_made_by_hand() -> None:
    # Distances 1², 2², ..., 101²: the median is 51², the 1st percentile 2², the 10th 11².
    pool = np.arange(1.0, 102)[:, None]
    found = nearest_neighbours(np.array([[0.0], [102.0]]), pool, MSE())
    assert found.nearest_distance.tolist() == [1.0, 1.0]
    assert found.nearest_index.tolist() == [0, 100]
    np.testing.assert_allclose(found.percentiles, [[4.0, 121.0, 2601.0]] * 2)
    np.testing.assert_allclose(found.mean_percentiles, [4.0, 121.0, 2601.0])
    assert found.mean_distance == 1.0


def test_levels_can_be_chosen() -> None:
    pool = np.arange(1.0, 12)[:, None]
    found = nearest_neighbours(np.array([[0.0]]), pool, RMSE(), levels=(0, 100))
    np.testing.assert_allclose(found.percentiles, [[1.0, 11.0]])
    with pytest.raises(InputError, match="between 0 and 100, got 101"):
        nearest_neighbours(np.array([[0.0]]), pool, RMSE(), levels=(101,))


def test_an_empty_pool() -> None:
    with pytest.raises(InputError, match="the pool is empty"):
        nearest_neighbours(np.zeros((1, 3)), np.zeros((0, 3)), MSE())


def test_no_targets() -> None:
    found = nearest_neighbours(np.zeros((0, 3)), np.zeros((2, 3)), MSE())
    assert found.nearest_index.shape == (0,)
    assert found.percentiles.shape == (0, 3)


@pytest.mark.parametrize(
    ("targets", "pool", "message"),
    [
        (np.zeros((1, 3)), np.zeros((2, 4)), r"a target has shape \(3,\), a pool record \(4,\)"),
        (np.zeros((1, 3)), np.full((2, 3), 2.0), "pool: 2 at index"),
        (np.full((1, 3), -1.0), np.zeros((2, 3)), "targets: -1 at index"),
        (np.zeros((1, 3)), np.array([[0.0, 0.0, np.inf]]), "pool has 1 NaN or infinite"),
    ],
)
def test_wrong_records(targets: np.ndarray, pool: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        nearest_neighbours(targets, pool, MSE(value_range=(0, 1)))


def test_real_digits(data_folder: Path) -> None:
    with np.load(data_folder / "mnist.npz") as archive:
        pool, targets = archive["x_train"][:10000] / 255.0, archive["x_test"][:100] / 255.0
    found = nearest_neighbours(targets, pool, MSE(value_range=(0, 1)))
    exact = [np.square(pool - target).mean((1, 2)) for target in targets[:10]]
    assert found.nearest_index[:10].tolist() == [int(row.argmin()) for row in exact]
    np.testing.assert_allclose(found.nearest_distance[:10], [row.min() for row in exact])
    expected = [np.percentile(row, [1, 10, 50]) for row in exact]
    np.testing.assert_allclose(found.percentiles[:10], expected, rtol=1e-10)
    # Balle et al. 2022, Figure 3a, has 0.0232, with a pool several times as large.
    assert 0.0232 < found.mean_distance < 0.035
