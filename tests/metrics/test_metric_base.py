"""What every metric has in common: shapes, ranges, pairs, and the direction of success."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from exhume.metrics import LPIPS, MSE, NCC, PSNR, RMSE, SSIM, ClassifierKL, Metric
from exhume.protocol.errors import InputError


def softmax_of_means(records: np.ndarray) -> np.ndarray:
    scores = records.reshape(len(records), -1)[:, :5] * 4
    exponentials = np.exp(scores)
    return exponentials / exponentials.sum(axis=1, keepdims=True)


METRICS = ("mse", "rmse", "psnr", "ncc", "ssim", "lpips", "kl")


@pytest.fixture(params=METRICS)
def metric(request: pytest.FixtureRequest, random_weights: Path) -> Metric:
    unit = (0.0, 1.0)
    return {
        "mse": MSE(value_range=unit),
        "rmse": RMSE(value_range=unit),
        "psnr": PSNR(value_range=unit),
        "ncc": NCC(value_range=unit),
        "ssim": SSIM(value_range=unit),
        "lpips": LPIPS(random_weights, value_range=unit),
        "kl": ClassifierKL(softmax_of_means, value_range=unit),
    }[request.param]


@pytest.fixture
def images() -> np.ndarray:
    return np.random.default_rng(0).uniform(size=(5, 12, 13))


def test_one_score_a_record(metric: Metric, images: np.ndarray) -> None:
    scores = metric(images[:3], images[2:])
    assert scores.shape == (3,)
    assert scores.dtype == np.float64
    assert np.isfinite(scores).all()


def test_nothing_scores_better_than_the_truth(metric: Metric, images: np.ndarray) -> None:
    identical, other = metric(images, images), metric(images, images[::-1])
    assert metric.reaches(identical, other).all()
    perfect = {"psnr": 100.0, "ssim": 1.0, "ncc": 1.0}.get(metric.name, 0.0)
    np.testing.assert_allclose(identical, perfect, atol=1e-12)


def test_pairwise_is_the_table_of_single_scores(metric: Metric, images: np.ndarray) -> None:
    truth, samples = images[:2], images[1:]
    table = metric.pairwise(truth, samples)
    reference = [[metric(t[None], s[None])[0] for s in samples] for t in truth]
    np.testing.assert_allclose(table, reference, rtol=1e-9, atol=1e-12)


def test_a_score_does_not_depend_on_its_company(metric: Metric, images: np.ndarray) -> None:
    together = metric(images[:3], images[2:])
    alone = [metric(images[[i]], images[[i + 2]])[0] for i in range(3)]
    # Digit for digit: a threshold that is itself a score must be met by that score.
    assert together.tolist() == alone


def test_a_score_does_not_depend_on_the_integer_type(metric: Metric) -> None:
    images = np.random.default_rng(1).integers(0, 2, size=(2, 12, 12))
    as_bytes = metric(images[:1].astype(np.uint8), images[1:].astype(np.uint8))
    assert as_bytes == metric(images[:1].astype(float), images[1:].astype(float))


def test_no_records_no_scores(metric: Metric, images: np.ndarray) -> None:
    assert metric(images[:0], images[:0]).shape == (0,)
    assert metric.pairwise(images[:0], images).shape == (0, 5)
    assert metric.pairwise(images, images[:0]).shape == (5, 0)


@pytest.mark.parametrize("which", ["truth", "samples"])
def test_a_value_out_of_range_is_named(metric: Metric, images: np.ndarray, which: str) -> None:
    wrong = images.copy()
    wrong[1, 2, 3] = 1.25
    pair = (wrong, images) if which == "truth" else (images, wrong)
    with pytest.raises(InputError, match=rf"{which}: 1\.25 at index \(1, 2, 3\).*\[0, 1\]"):
        metric(*pair)
    with pytest.raises(InputError, match=rf"{which}: 1\.25"):
        metric.pairwise(*pair)


def test_rounding_beyond_the_range_passes(metric: Metric, images: np.ndarray) -> None:
    edge = images.copy()
    edge[0, 0, 0] = 1 + 0.9e-6
    assert np.isfinite(metric(edge, images)).all()
    edge[0, 0, 0] = -1.1e-6
    with pytest.raises(InputError, match=r"-1\.1e-06"):
        metric(edge, images)


def test_nan_is_refused(metric: Metric, images: np.ndarray) -> None:
    wrong = images.copy()
    wrong[4, 0, 1] = np.nan
    with pytest.raises(InputError, match=r"samples has 1 NaN .* \(4, 0, 1\)"):
        metric(images, wrong)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (np.zeros((4, 12, 13)), "must have one shape"),
        (np.zeros((5, 13, 12)), "must have one shape"),
        (np.zeros(5), r"shape \(k, features, ...\)"),
        (np.zeros((5, 12, 13), dtype=complex), "real numbers"),
        (np.full((5, 12, 13), "x"), "real numbers"),
    ],
)
def test_wrong_arrays(
    metric: Metric, images: np.ndarray, samples: np.ndarray, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        metric(images, samples)


def test_pairwise_wants_records_of_one_shape(metric: Metric, images: np.ndarray) -> None:
    with pytest.raises(InputError, match="both must be the same"):
        metric.pairwise(images, np.zeros((2, 13, 12)))


def test_reaches_turns_round_for_a_similarity_and_fails_nan(metric: Metric) -> None:
    got = metric.reaches(np.array([1.0, 2.0, 3.0, np.nan]), 2.0).tolist()
    below, above = [True, True, False, False], [False, True, True, False]
    assert got == (above if metric.higher_is_better else below)


@pytest.mark.parametrize("value_range", [(1.0, 0.0), (0.0, 0.0), (0.0, np.inf), (np.nan, 1.0)])
@pytest.mark.parametrize("kind", [MSE, RMSE, PSNR, NCC, SSIM])
def test_a_range_that_is_none(kind: type, value_range: tuple[float, float]) -> None:
    with pytest.raises(InputError, match="low < high"):
        kind(value_range=value_range)


@pytest.mark.parametrize("kind", [PSNR, SSIM])
def test_metrics_that_need_a_range(kind: type) -> None:
    with pytest.raises(TypeError, match="value_range"):
        kind()
    with pytest.raises(InputError, match="needs value_range"):
        kind(value_range=None)


def test_importing_metrics_loads_nothing_heavy() -> None:
    code = (
        "import sys, exhume.metrics; "
        "print([m for m in ('torch', 'torchmetrics', 'scipy', 'sklearn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
