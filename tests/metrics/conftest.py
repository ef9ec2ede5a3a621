from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from exhume.metrics import alexnet


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real data sets, or a skip that says why."""
    folder = os.environ.get("EXHUME_DATA")
    if not folder:
        pytest.skip("EXHUME_DATA is not set: no real images here")
    return Path(folder)


@pytest.fixture(scope="session")
def cifar(data_folder: Path) -> np.ndarray:
    """The first 64 CIFAR-10 test images of the file, (64, 32, 32, 3) in [0, 1]."""
    with np.load(data_folder / "cifar10.npz") as archive:
        return archive["x_test"][:64] / 255.0


@pytest.fixture(scope="session")
def random_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """LPIPS weights of the right shapes, drawn at random: enough to check the arithmetic."""
    rng = np.random.default_rng(7)
    arrays = {}
    for index, layer in enumerate(alexnet._LAYERS):
        fan_in = np.prod(layer.shape[1:])
        arrays[f"features.{layer.number}.weight"] = rng.normal(0, fan_in**-0.5, layer.shape)
        arrays[f"features.{layer.number}.bias"] = rng.normal(0, 0.1, layer.shape[0])
        arrays[f"lin{index}"] = rng.uniform(0, 1, layer.shape[0])
    path = tmp_path_factory.mktemp("lpips") / "lpips_alex.npz"
    np.savez(path, **{name: array.astype(np.float32) for name, array in arrays.items()})
    return path
