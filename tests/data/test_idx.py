"""IDX files: round trips through a writer of our own, and every kind of damage."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from exhume.data import load
from exhume.data.idx import read_idx, read_idx_shape
from exhume.protocol.errors import InputError

ARRAYS = hnp.arrays(np.uint8, hnp.array_shapes(min_dims=1, max_dims=4, max_side=5))


def idx_bytes(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_idx(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = idx_bytes(array)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def write_mnist(folder: Path, *, ending: str = "", count: int = 4) -> np.ndarray:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
    labels = np.arange(count, dtype=np.uint8) % 10
    for part in ("train", "t10k"):
        write_idx(folder / f"{part}-images-idx3-ubyte{ending}", images)
        write_idx(folder / f"{part}-labels-idx1-ubyte{ending}", labels)
    return images


@given(array=ARRAYS, ending=st.sampled_from(["", ".gz"]))
@settings(deadline=None, max_examples=50)
def test_round_trip(
    tmp_path_factory: pytest.TempPathFactory, array: np.ndarray, ending: str
) -> None:
    path = tmp_path_factory.mktemp("idx") / f"array-ubyte{ending}"
    write_idx(path, array)
    np.testing.assert_array_equal(read_idx(path), array)
    assert read_idx_shape(path) == array.shape


@given(array=ARRAYS, ending=st.sampled_from(["", ".gz"]), data=st.data())
@settings(deadline=None, max_examples=100)
def test_every_cut_is_noticed(
    tmp_path_factory: pytest.TempPathFactory, array: np.ndarray, ending: str, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("idx") / f"array-ubyte{ending}"
    write_idx(path, array)
    whole = path.read_bytes()
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(InputError, match="array-ubyte"):
        read_idx(path)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is empty"),
        (b"\x00\x00\x0d\x01\x00\x00\x00\x01\x00", "0x00000d01"),
        (b"\x89PNG\r\n\x1a\n", "not an IDX file"),
        (b"\x00\x00\x08\x05" + b"\x00\x00\x00\x01" * 5 + b"\x00", "not an IDX file"),
        (b"\x00\x00\x08\x03\x00\x00", "within its header"),
        (idx_bytes(np.zeros(3, np.uint8)) + b"!", "holds more bytes"),
        (idx_bytes(np.zeros(3, np.uint8))[:-1], "only 2 bytes"),
        (b"\x00\x00\x08\x03" + b"\xff" * 12, "header promises"),
    ],
)
def test_damage_is_named(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(content)
    with pytest.raises(InputError, match=complaint) as caught:
        read_idx(path)
    assert str(path) in str(caught.value)


def test_a_file_that_is_not_gzipped_but_says_so(tmp_path: Path) -> None:
    path = tmp_path / "labels.gz"
    path.write_bytes(idx_bytes(np.zeros(3, np.uint8)))
    with pytest.raises(InputError, match="cannot be read as an IDX file"):
        read_idx(path)


def test_corrupted_gzip(tmp_path: Path) -> None:
    path = tmp_path / "labels.gz"
    write_idx(path, np.arange(100, dtype=np.uint8))
    content = bytearray(path.read_bytes())
    content[40] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"labels\.gz"):
        read_idx(path)


def test_missing_and_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_idx(tmp_path / "nothing")
    with pytest.raises(InputError, match="is a folder"):
        read_idx(tmp_path)


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize(
    ("name", "place"),
    [("mnist", "mnist"), ("mnist", "MNIST/raw"), ("fashion-mnist", "fashion-mnist")],
)
def test_load(tmp_path: Path, name: str, place: str, ending: str) -> None:
    images = write_mnist(tmp_path / place, ending=ending)
    data = load(name, folder=tmp_path)
    assert data.source == str(tmp_path / place)
    assert data.train.x.dtype == np.float32
    np.testing.assert_array_equal(np.round(data.train.x * 255), images)
    assert data.train.labels.tolist() == [0, 1, 2, 3]
    assert data.train.labels.dtype == np.int64
    assert data.test is not None
    assert len(data.test) == 4


def test_dotted_names(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist")
    for path in list((tmp_path / "mnist").iterdir()):
        path.rename(path.with_name(path.name.replace("-idx", ".idx")))
    assert len(load("mnist", folder=tmp_path).train) == 4


def test_no_test_part(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist")
    for path in list((tmp_path / "mnist").glob("t10k*")):
        path.unlink()
    assert load("mnist", folder=tmp_path).test is None


@pytest.mark.parametrize("part", ["train", "t10k"])
@pytest.mark.parametrize("half", ["images-idx3", "labels-idx1"])
def test_half_a_pair_is_an_error(tmp_path: Path, part: str, half: str) -> None:
    write_mnist(tmp_path / "mnist")
    (tmp_path / "mnist" / f"{part}-{half}-ubyte").unlink()
    with pytest.raises(InputError, match=f"has no {part}-{half}-ubyte"):
        load("mnist", folder=tmp_path)


def test_wrong_sides_lengths_and_labels(tmp_path: Path) -> None:
    folder = tmp_path / "mnist"
    write_mnist(folder)
    write_idx(folder / "train-labels-idx1-ubyte", np.array([0, 1, 10, 3], np.uint8))
    with pytest.raises(InputError, match="label 10 of image 2 is out of range"):
        load("mnist", folder=tmp_path)
    write_idx(folder / "train-labels-idx1-ubyte", np.zeros(5, np.uint8))
    with pytest.raises(InputError, match="must be 4 integers"):
        load("mnist", folder=tmp_path)
    write_idx(folder / "train-images-idx3-ubyte", np.zeros((4, 20, 20), np.uint8))
    with pytest.raises(InputError, match="n×28×28 with n ≥ 1, got 4×20×20"):
        load("mnist", folder=tmp_path)
    write_idx(folder / "train-images-idx3-ubyte", np.zeros((0, 28, 28), np.uint8))
    with pytest.raises(InputError, match="n ≥ 1"):
        load("mnist", folder=tmp_path)
