"""The embedded images are Fashion-MNIST's, byte for byte."""

import hashlib
import importlib.util
from pathlib import Path

import numpy as np
import pytest

from exhume.data import load
from exhume.data.embedded import FILE, IMAGES_SHA256
from exhume.data.npz import npz_array, npz_keys
from exhume.protocol.errors import InputError

# Of the labels, as tools/make_embedded.py printed it; the images' is in the package.
LABELS_SHA256 = "7c78afd5154dd0ba56c47a3c78cdade80648caa2e64abeba358ff15e9114e784"
MAKER = Path(__file__).parents[2] / "tools" / "make_embedded.py"


def test_content() -> None:
    x, y = npz_array(FILE, "x"), npz_array(FILE, "y")
    assert npz_keys(FILE) == ("x", "y")
    assert (x.shape, x.dtype, y.dtype) == ((3000, 28, 28), np.uint8, np.uint8)
    assert np.bincount(y).tolist() == [300] * 10
    # Made from Debian's dataset-fashion-mnist 0.0~git20200523.55506a9-1.
    assert IMAGES_SHA256 == "68aadec2e3f3672ccec48b8f2ac0d995923eb6a2fa888bc5b4c0a74d8a761015"
    assert hashlib.sha256(x.tobytes()).hexdigest() == IMAGES_SHA256
    assert hashlib.sha256(y.tobytes()).hexdigest() == LABELS_SHA256


def test_load() -> None:
    data = load("fashion-mnist-small")
    assert data.train.x.dtype == np.float32
    assert (data.train.x.min(), data.train.x.max()) == (0.0, 1.0)
    assert data.test is None
    assert data.classes is not None
    # The training set starts with an ankle boot and a T-shirt.
    assert [data.classes[i] for i in data.train.labels[:2]] == ["Ankle boot", "T-shirt/top"]


def test_small_and_licensed() -> None:
    assert FILE.stat().st_size < 1_500_000
    licence = FILE.with_name("LICENSE-fashion-mnist").read_text()
    assert "Copyright (c) 2017 Zalando SE" in licence
    assert "MIT License" in licence


def test_they_are_the_first_of_each_class(real_data: Path) -> None:
    full = load("fashion-mnist", folder=real_data).train
    taken = np.zeros(10, dtype=int)
    chosen = []
    for i, label in enumerate(full.labels):
        if taken[label] < 300:
            taken[label] += 1
            chosen.append(i)
    small = load("fashion-mnist-small").train
    np.testing.assert_array_equal(small.x, full.x[chosen])
    np.testing.assert_array_equal(small.labels, full.labels[chosen])


def test_damage_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = npz_array(FILE, "x").copy()
    x[17, 3, 3] ^= 1
    damaged = tmp_path / "small.npz"
    np.savez(damaged, x=x, y=npz_array(FILE, "y"))
    monkeypatch.setattr("exhume.data.embedded.FILE", damaged)
    with pytest.raises(InputError, match="embedded images are damaged"):
        load("fashion-mnist-small")


@pytest.mark.skipif(not MAKER.exists(), reason="tools/ is not part of an installed package")
def test_the_maker_is_deterministic() -> None:
    spec = importlib.util.spec_from_file_location("make_embedded", MAKER)
    assert spec is not None
    assert spec.loader is not None
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    labels = np.array([1, 0, 1, 1, 0, 2], np.uint8)
    assert maker.first_of_each_class(labels, 2).tolist() == [0, 1, 2, 4, 5]
    arrays = {"x": npz_array(FILE, "x")[:50], "y": npz_array(FILE, "y")[:50]}
    assert maker.archive_bytes(arrays) == maker.archive_bytes(arrays)
    # zlib may pack differently from version to version; what is unpacked may not.
    repacked = maker.archive_bytes({key: npz_array(FILE, key) for key in ("x", "y")})
    assert abs(len(repacked) - FILE.stat().st_size) < 100_000
