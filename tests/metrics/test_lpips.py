"""LPIPS, beside a NumPy reference, beside torchmetrics' own, and on real images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from exhume.metrics import LPIPS, lpips_unavailable, lpips_weights
from exhume.protocol.errors import InputError

UNIT = (0.0, 1.0)


def convolve(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, stride: int, pad: int):
    x = np.pad(x, ((0, 0), (pad, pad), (pad, pad)))
    patches = np.lib.stride_tricks.sliding_window_view(x, weight.shape[2:], axis=(1, 2))
    patches = patches[:, ::stride, ::stride]
    return np.einsum("chwij,ocij->ohw", patches, weight, optimize=True) + bias[:, None, None]


def pool(x: np.ndarray) -> np.ndarray:
    return np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))[:, ::2, ::2].max((3, 4))


def reference_features(image: np.ndarray, arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
    """AlexNet's five rectified feature maps of a (3, H, W) image in [0, 1], in float64."""
    shift, spread = np.array([-0.030, -0.088, -0.188]), np.array([0.458, 0.448, 0.450])
    x = (2 * image - 1 - shift[:, None, None]) / spread[:, None, None]
    maps = []
    for number, stride, pad in ((0, 4, 2), (3, 1, 2), (6, 1, 1), (8, 1, 1), (10, 1, 1)):
        if number in (3, 6):
            x = pool(x)
        weight, bias = (arrays[f"features.{number}.{k}"] for k in ("weight", "bias"))
        x = np.maximum(convolve(x, weight.astype(float), bias.astype(float), stride, pad), 0)
        maps.append(x)
    return maps


def reference_lpips(a: np.ndarray, b: np.ndarray, weights: Path) -> float:
    """Zhang et al. 2018, eq. 1, layer by layer, for (H, W, 3) images."""
    with np.load(weights) as archive:
        arrays = dict(archive)
    maps = [reference_features(np.moveaxis(x, -1, 0), arrays) for x in (a, b)]
    total = 0.0
    for index, (first, second) in enumerate(zip(*maps, strict=True)):
        units = [x / (np.linalg.norm(x, axis=0, keepdims=True) + 1e-10) for x in (first, second)]
        head = arrays[f"lin{index}"].astype(float)
        total += (head[:, None, None] * (units[0] - units[1]) ** 2).sum(0).mean()
    return total


@pytest.mark.parametrize("side", [31, 32, 47])
def test_the_reference_with_random_weights(random_weights: Path, side: int) -> None:
    truth, samples = np.random.default_rng(0).uniform(size=(2, 2, side, side, 3))
    expected = [reference_lpips(*pair, random_weights) for pair in zip(truth, samples, strict=True)]
    got = LPIPS(random_weights, value_range=UNIT)(truth, samples)
    # float32 features: six digits.
    np.testing.assert_allclose(got, expected, rtol=2e-5)


def test_more_images_than_one_batch(random_weights: Path) -> None:
    truth, samples = np.random.default_rng(1).uniform(size=(2, 70, 32, 32))
    metric = LPIPS(random_weights, value_range=UNIT)
    together = metric(truth, samples)
    assert [metric(truth[[i]], samples[[i]])[0] for i in (0, 33, 69)] == together[
        [0, 33, 69]
    ].tolist()


def test_grey_is_repeated(random_weights: Path) -> None:
    truth, samples = np.random.default_rng(2).uniform(size=(2, 2, 32, 32))
    metric = LPIPS(random_weights, value_range=UNIT)
    colour = metric(*(np.repeat(x[..., None], 3, axis=-1) for x in (truth, samples)))
    assert metric(truth, samples).tolist() == colour.tolist()
    assert metric(truth[..., None], samples[..., None]).tolist() == colour.tolist()


@pytest.mark.parametrize(("shape", "enlarged"), [((28, 28), (32, 32)), ((16, 24), (32, 48))])
def test_small_images_are_enlarged(
    random_weights: Path, shape: tuple[int, int], enlarged: tuple[int, int]
) -> None:
    import torch

    pair = np.random.default_rng(3).uniform(size=(2, 1, *shape))
    large = torch.nn.functional.interpolate(
        torch.tensor(pair, dtype=torch.float32), size=enlarged, mode="bilinear"
    ).numpy()
    metric = LPIPS(random_weights, value_range=UNIT)
    np.testing.assert_allclose(metric(*pair), metric(*np.clip(large, 0, 1)), rtol=1e-6)


def test_the_range_does_not_change_the_score(random_weights: Path) -> None:
    truth, samples = np.random.default_rng(4).uniform(size=(2, 2, 32, 32))
    unit = LPIPS(random_weights, value_range=UNIT)(truth, samples)
    signed = LPIPS(random_weights, value_range=(-1, 1))(2 * truth - 1, 2 * samples - 1)
    np.testing.assert_allclose(signed, unit, rtol=1e-5)


@pytest.mark.parametrize("shape", [(1, 32, 32, 2), (1, 32, 32, 4)])
def test_other_channels_are_refused(random_weights: Path, shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="1 or 3 channels"):
        LPIPS(random_weights, value_range=UNIT)(np.zeros(shape), np.zeros(shape))


def test_weights_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no file of weights at .*nowhere\.npz"):
        LPIPS(tmp_path / "nowhere.npz", value_range=UNIT)


def test_a_file_that_is_no_archive(tmp_path: Path) -> None:
    path = tmp_path / "weights.npz"
    path.write_bytes(b"not an archive")
    with pytest.raises(InputError, match=r"not an \.npz of LPIPS weights"):
        LPIPS(path, value_range=UNIT)(np.zeros((1, 32, 32)), np.zeros((1, 32, 32)))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("lin2", np.ones(5), r"lin2 must be there with shape \(384,\), found \(5,\)"),
        ("lin0", np.full(64, -1.0), "lin0 has negative entries"),
        ("features.6.bias", None, "features.6.bias must be there .* found nothing"),
    ],
)
def test_weights_of_another_network(
    random_weights: Path, tmp_path: Path, name: str, value: np.ndarray | None, message: str
) -> None:
    with np.load(random_weights) as archive:
        arrays = dict(archive)
    del arrays[name]
    if value is not None:
        arrays[name] = value
    np.savez(tmp_path / "other.npz", **arrays)
    with pytest.raises(InputError, match=message):
        LPIPS(tmp_path / "other.npz", value_range=UNIT)(
            np.zeros((1, 32, 32)), np.zeros((1, 32, 32))
        )


def test_where_the_weights_are_looked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, random_weights: Path
) -> None:
    monkeypatch.delenv("EXHUME_DATA", raising=False)
    assert "EXHUME_DATA" in (lpips_unavailable() or "")
    assert "is not set" in (lpips_unavailable() or "")
    monkeypatch.setenv("EXHUME_DATA", str(tmp_path))
    assert f"{tmp_path} (EXHUME_DATA) does not contain it" in (lpips_unavailable() or "")
    with pytest.raises(InputError, match="needs lpips_alex"):
        lpips_weights()
    monkeypatch.setenv("EXHUME_DATA", str(random_weights.parent))
    assert lpips_unavailable() is None
    assert lpips_weights() == random_weights


@pytest.fixture(scope="module")
def weights(data_folder: Path) -> Path:
    path = data_folder / "lpips_alex.npz"
    if not path.is_file():
        pytest.skip(f"{path} is not there: no LPIPS weights here")
    return path


def blurred(images: np.ndarray, sigma: float) -> np.ndarray:
    from scipy.ndimage import gaussian_filter

    return gaussian_filter(images, (0, sigma, sigma, 0), mode="nearest")


def test_real_weights_against_the_reference(weights: Path, cifar: np.ndarray) -> None:
    truth, samples = cifar[:3], cifar[3:6]
    expected = [reference_lpips(*pair, weights) for pair in zip(truth, samples, strict=True)]
    got = LPIPS(weights, value_range=UNIT)(truth, samples)
    np.testing.assert_allclose(got, expected, rtol=2e-5)


def test_torchmetrics_with_the_same_trunk(
    weights: Path, cifar: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from torch import nn
    from torchmetrics.functional.image import lpips as peer

    # torchmetrics brings its own copy of the channels' weights; the trunk it would take from
    # torchvision is laid out here as its AlexNet is, and filled from the file.
    trunk = nn.Sequential(
        *(nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(), nn.MaxPool2d(3, 2)),
        *(nn.Conv2d(64, 192, 5, 1, 2), nn.ReLU(), nn.MaxPool2d(3, 2)),
        *(nn.Conv2d(192, 384, 3, 1, 1), nn.ReLU()),
        *(nn.Conv2d(384, 256, 3, 1, 1), nn.ReLU()),
        *(nn.Conv2d(256, 256, 3, 1, 1), nn.ReLU()),
    )
    with np.load(weights) as archive:
        state = {
            name.removeprefix("features."): torch.from_numpy(archive[name])
            for name in archive.files
            if name.startswith("features.")
        }
    trunk.load_state_dict(state)
    monkeypatch.setattr(peer, "_get_tv_model_features", lambda net, pretrained: trunk)
    network = peer._LPIPS(pretrained=True, net="alex")
    pair = [
        torch.from_numpy(np.moveaxis(x, -1, 1)).float() * 2 - 1 for x in (cifar[:8], cifar[8:16])
    ]
    with torch.no_grad():
        expected = network(*pair).numpy().reshape(-1)
    got = LPIPS(weights, value_range=UNIT)(cifar[:8], cifar[8:16])
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_real_images_in_the_order_an_eye_puts_them(weights: Path, cifar: np.ndarray) -> None:
    metric = LPIPS(weights, value_range=UNIT)
    truth = cifar[:32]
    mild, strong = metric(truth, blurred(truth, 0.4)), metric(truth, blurred(truth, 0.7))
    assert (metric(truth, truth) == 0).all()
    assert (mild > 0).all()
    assert (mild < strong).all()
    assert (strong < metric(truth, cifar[32:64])).all()


def test_golden_values_on_cifar(weights: Path, cifar: np.ndarray) -> None:
    metric = LPIPS(weights, value_range=UNIT)
    other = metric(cifar[:2], cifar[2:4])
    got = np.concatenate([metric(cifar[:2], blurred(cifar[:2], 1.5)), other])
    # This implementation's values; the NumPy reference and torchmetrics above confirm its formula.
    np.testing.assert_allclose(got, [0.218429, 0.172171, 0.183794, 0.111905], atol=2e-6)
    assert metric(cifar[:2], cifar[2:4]).tolist() == other.tolist()
