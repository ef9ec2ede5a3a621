"""MSE, RMSE, PSNR, NCC."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from exhume.metrics import MSE, NCC, PSNR, RMSE
from exhume.protocol.errors import InputError

RECORDS = hnp.arrays(np.float64, (2, 6), elements=st.floats(-1e3, 1e3, allow_subnormal=False))


def test_mse_written_out() -> None:
    rng = np.random.default_rng(0)
    truth, samples = rng.normal(size=(2, 4, 3, 5))
    reference = [
        sum((a - b) ** 2 for a, b in zip(t.flat, s.flat, strict=True)) / 15
        for t, s in zip(truth, samples, strict=True)
    ]
    np.testing.assert_allclose(MSE()(truth, samples), reference, rtol=1e-14)
    np.testing.assert_allclose(RMSE()(truth, samples), np.sqrt(reference), rtol=1e-14)


@pytest.mark.parametrize("error", [1e-13, 1e-10, 1e-3])
def test_tiny_errors_survive(error: float) -> None:
    # An exact attack errs by 1e-13: a table made by a matrix product would read about 1e-16 here.
    truth = np.random.default_rng(1).uniform(0.5, 1.0, size=(3, 50))
    samples = truth + error
    expected = np.mean((samples - truth) ** 2, axis=1)
    np.testing.assert_allclose(MSE()(truth, samples), expected, rtol=1e-14)
    np.testing.assert_allclose(np.diag(MSE().pairwise(truth, samples)), expected, rtol=1e-12)


def test_scale_makes_columns_count_alike() -> None:
    truth = np.array([[1.0, 1000.0]])
    samples = np.array([[2.0, 1000.0]])
    scale = np.array([0.5, 100.0])
    np.testing.assert_allclose(MSE(scale=scale)(truth, samples), [2.0])
    np.testing.assert_allclose(RMSE(scale=scale)(truth, samples), [np.sqrt(2.0)])
    np.testing.assert_allclose(MSE(scale=np.array(2.0))(truth, samples), [0.125])
    np.testing.assert_allclose(MSE(scale=scale).pairwise(truth, samples), [[2.0]])


def test_scale_is_in_the_shape_of_a_record() -> None:
    scale = np.arange(1.0, 7).reshape(2, 3)
    truth, samples = np.zeros((1, 2, 3)), scale[None] * 3
    np.testing.assert_allclose(MSE(scale=scale)(truth, samples), [9.0])
    with pytest.raises(InputError, match=r"scale has shape \(2, 3\), but a record \(3, 2\)"):
        MSE(scale=scale)(np.zeros((1, 3, 2)), np.zeros((1, 3, 2)))


@pytest.mark.parametrize("kind", [MSE, RMSE])
@pytest.mark.parametrize("bad", [0.0, -1.0])
def test_a_scale_must_be_positive(kind: type, bad: float) -> None:
    with pytest.raises(InputError, match=r"positive everywhere, got .* at index \(1\).*scale 1"):
        kind(scale=np.array([1.0, bad]))


def test_a_scale_must_be_finite() -> None:
    with pytest.raises(InputError, match="scale has 1 NaN"):
        MSE(scale=np.array([1.0, np.nan]))


def test_the_scale_cannot_be_changed_later() -> None:
    scale = np.array([1.0, 2.0])
    metric = MSE(scale=scale)
    scale[0] = 100.0
    np.testing.assert_allclose(metric(np.zeros((1, 2)), np.ones((1, 2))), [0.625])


@given(RECORDS, RECORDS, RECORDS)
@settings(deadline=None, max_examples=100)
def test_rmse_is_a_metric(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    rmse = RMSE()
    np.testing.assert_array_equal(rmse(a, b), rmse(b, a))
    assert (rmse(a, c) <= (rmse(a, b) + rmse(b, c)) * (1 + 1e-12)).all()


def test_psnr_against_its_definition() -> None:
    truth = np.zeros((3, 10))
    samples = np.full((3, 10), [[0.1], [0.5], [1.0]])
    # 10 log10(1 / MSE) with MSE = 0.01, 0.25, 1.
    expected = [20.0, 6.020599913279624, 0.0]
    np.testing.assert_allclose(PSNR(value_range=(0, 1))(truth, samples), expected, atol=1e-12)


def test_psnr_does_not_change_with_the_units() -> None:
    rng = np.random.default_rng(2)
    truth, samples = rng.uniform(size=(2, 4, 9))
    unit = PSNR(value_range=(0, 1))(truth, samples)
    np.testing.assert_allclose(PSNR(value_range=(0, 255))(truth * 255, samples * 255), unit)
    np.testing.assert_allclose(PSNR(value_range=(-1, 1))(2 * truth - 1, 2 * samples - 1), unit)


def test_psnr_agrees_with_torchmetrics() -> None:
    import torch
    from torchmetrics.functional.image import peak_signal_noise_ratio

    rng = np.random.default_rng(3)
    truth, samples = rng.uniform(size=(2, 1, 8, 8))
    peer = peak_signal_noise_ratio(torch.tensor(samples), torch.tensor(truth), data_range=1.0)
    np.testing.assert_allclose(PSNR(value_range=(0, 1))(truth, samples), float(peer), rtol=1e-6)


def test_psnr_is_capped_and_finite() -> None:
    truth = np.full((3, 4), 0.5)
    samples = truth + np.array([[0.0], [1e-7], [1e-2]])
    np.testing.assert_allclose(PSNR(value_range=(0, 1))(truth, samples), [100, 100, 40], rtol=1e-9)
    sixty = PSNR(value_range=(0, 1), cap_db=60.0)
    np.testing.assert_allclose(sixty(truth, samples), [60, 60, 40], rtol=1e-9)
    np.testing.assert_allclose(sixty.pairwise(truth[:1], samples), [[60, 60, 40]], rtol=1e-9)


@pytest.mark.parametrize("cap", [0.0, -3.0, np.inf, np.nan])
def test_psnr_wants_a_finite_cap(cap: float) -> None:
    with pytest.raises(InputError, match="cap_db"):
        PSNR(value_range=(0, 1), cap_db=cap)


def test_ncc_agrees_with_numpy() -> None:
    rng = np.random.default_rng(4)
    truth, samples = rng.normal(size=(2, 5, 4, 6))
    expected = [
        np.corrcoef(t.ravel(), s.ravel())[0, 1] for t, s in zip(truth, samples, strict=True)
    ]
    np.testing.assert_allclose(NCC()(truth, samples), expected, rtol=1e-12)


@given(
    hnp.arrays(np.float64, (1, 7), elements=st.integers(-50, 50)),
    st.floats(1e-3, 1e3),
    st.floats(-1e3, 1e3),
)
@settings(deadline=None, max_examples=100)
def test_ncc_sees_neither_brightness_nor_contrast(x: np.ndarray, a: float, b: float) -> None:
    np.testing.assert_allclose(NCC()(x, a * x + b), 1.0, atol=1e-9)
    if np.ptp(x) > 0:
        np.testing.assert_allclose(NCC()(x, b - a * x), -1.0, atol=1e-9)


@given(RECORDS, RECORDS)
@settings(deadline=None, max_examples=100)
def test_ncc_stays_in_its_range(a: np.ndarray, b: np.ndarray) -> None:
    table = NCC().pairwise(a, b)
    assert (np.abs(table) <= 1).all()
    np.testing.assert_allclose(np.diag(table), NCC()(a, b), atol=1e-12)


def test_ncc_of_constant_records() -> None:
    ramp, level, black = np.linspace(0, 1, 9), np.full(9, 0.1), np.zeros(9)
    truth = np.stack([level, level, ramp, black, black])
    samples = np.stack([black, ramp, level, black, ramp])
    assert NCC()(truth, samples).tolist() == [1.0, 0.0, 0.0, 1.0, 0.0]
    assert NCC().pairwise(truth[:2], samples[:2]).tolist() == [[1.0, 0.0], [1.0, 0.0]]


@pytest.mark.parametrize("size", [1e-150, 1e150])
def test_ncc_of_tiny_and_huge_records(size: float) -> None:
    x = np.array([[0.0, 1.0, 3.0, 2.0]])
    np.testing.assert_allclose(NCC()(x, x * size), 1.0)
