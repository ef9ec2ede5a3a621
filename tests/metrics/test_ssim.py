"""SSIM, beside a reference written out position by position."""

from __future__ import annotations

import numpy as np
import pytest

from exhume.metrics import SSIM
from exhume.protocol.errors import InputError


def reference_ssim(a: np.ndarray, b: np.ndarray, sigma: float) -> float:
    """Wang et al. 2004, eq. 13 with the Gaussian window of its section III-B, on [0, 1], (H, W)."""
    half = int(3.5 * sigma + 0.5)
    axis = np.arange(-half, half + 1)
    window = np.exp(-(axis[:, None] ** 2 + axis[None, :] ** 2) / (2 * sigma**2))
    window /= window.sum()
    a, b = (np.pad(x, half, mode="reflect") for x in (a, b))
    values = []
    for i in range(a.shape[0] - 2 * half):
        for j in range(a.shape[1] - 2 * half):
            patch = np.s_[i : i + 2 * half + 1, j : j + 2 * half + 1]
            p, q = a[patch], b[patch]
            mean_p, mean_q = (window * p).sum(), (window * q).sum()
            var_p = (window * (p - mean_p) ** 2).sum()
            var_q = (window * (q - mean_q) ** 2).sum()
            cov = (window * (p - mean_p) * (q - mean_q)).sum()
            brightness = (2 * mean_p * mean_q + 0.01**2) / (mean_p**2 + mean_q**2 + 0.01**2)
            values.append(brightness * (2 * cov + 0.03**2) / (var_p + var_q + 0.03**2))
    return float(np.mean(values))


@pytest.mark.parametrize("sigma", [0.4, 1.0, 1.5])
@pytest.mark.parametrize("shape", [(8, 8), (12, 9)])
def test_grey_images_against_the_reference(shape: tuple[int, int], sigma: float) -> None:
    truth, samples = np.random.default_rng(0).uniform(size=(2, 3, *shape))
    expected = [reference_ssim(a, b, sigma) for a, b in zip(truth, samples, strict=True)]
    got = SSIM(value_range=(0, 1), sigma=sigma)(truth, samples)
    np.testing.assert_allclose(got, expected, rtol=1e-10)


def test_colour_is_the_mean_over_channels() -> None:
    truth, samples = np.random.default_rng(1).uniform(size=(2, 2, 10, 11, 3))
    expected = [
        np.mean([reference_ssim(a[..., c], b[..., c], 1.5) for c in range(3)])
        for a, b in zip(truth, samples, strict=True)
    ]
    np.testing.assert_allclose(SSIM(value_range=(0, 1))(truth, samples), expected, rtol=1e-10)


def test_more_images_than_one_batch() -> None:
    truth, samples = np.random.default_rng(2).uniform(size=(2, 25, 8, 8, 3))
    metric = SSIM(value_range=(0, 1))
    alone = [metric(truth[[i]], samples[[i]])[0] for i in (0, 11, 24)]
    np.testing.assert_allclose(metric(truth, samples)[[0, 11, 24]], alone, rtol=1e-12)


def test_the_range_does_not_change_the_score() -> None:
    truth, samples = np.random.default_rng(3).uniform(size=(2, 2, 9, 9))
    unit = SSIM(value_range=(0, 1))(truth, samples)
    for low, high in ((-1.0, 1.0), (0.0, 255.0)):
        moved = [low + (high - low) * x for x in (truth, samples)]
        np.testing.assert_allclose(SSIM(value_range=(low, high))(*moved), unit, rtol=1e-9)


def test_black_and_white_are_nearly_zero_alike() -> None:
    black, white = np.zeros((1, 8, 8)), np.ones((1, 8, 8))
    # Two constants: only the brightness term is left, 0.01² / (1 + 0.01²).
    np.testing.assert_allclose(SSIM(value_range=(0, 1))(black, white), [1e-4 / 1.0001], rtol=1e-9)


def test_real_images_more_noise_less_alike(cifar: np.ndarray) -> None:
    noise = np.random.default_rng(4).normal(size=cifar[:8].shape)
    metric = SSIM(value_range=(0, 1))
    scores = [
        metric(cifar[:8], np.clip(cifar[:8] + size * noise, 0, 1)).mean()
        for size in (0.0, 0.02, 0.1, 0.5)
    ]
    assert scores == sorted(scores, reverse=True)
    np.testing.assert_allclose(scores[0], 1.0, atol=1e-12)


def test_an_image_smaller_than_the_window() -> None:
    small = np.zeros((1, 5, 9))
    with pytest.raises(InputError, match="at least 6 pixels, got 5 × 9: use a smaller sigma"):
        SSIM(value_range=(0, 1))(small, small)
    assert SSIM(value_range=(0, 1), sigma=1.0)(small, small) == 1.0
    smallest = np.zeros((1, 6, 6))
    assert SSIM(value_range=(0, 1))(smallest, smallest) == 1.0


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 64), r"\(H, W, C\) or \(C, H, W\), got \(64,\)"),
        ((1, 8, 8, 3, 1), r"got \(8, 8, 3, 1\)"),
    ],
)
def test_records_that_are_no_images(shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SSIM(value_range=(0, 1))(np.zeros(shape), np.zeros(shape))


def test_channels_may_be_first() -> None:
    truth, guess = np.random.default_rng(0).random((2, 2, 16, 16, 3))
    metric = SSIM(value_range=(0, 1))
    first = [np.moveaxis(images, -1, 1) for images in (truth, guess)]
    np.testing.assert_array_equal(metric(*first), metric(truth, guess))


@pytest.mark.parametrize("sigma", [0.0, -1.0, np.nan, 1e3])
def test_a_sigma_that_makes_no_window(sigma: float) -> None:
    with pytest.raises(InputError, match="sigma must lie between"):
        SSIM(value_range=(0, 1), sigma=sigma)
