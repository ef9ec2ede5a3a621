"""Data sets by name: from archives, from scikit-learn, and what is said where they are missing."""

import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from exhume.data import DataSet, Task, check_for_training, load, names
from exhume.data.catalogue import SOURCES
from exhume.data.npz import npz_array, npz_keys, npz_shape
from exhume.protocol.errors import InputError


def write_npz(path: Path, **arrays: object) -> Path:
    np.savez_compressed(path, **arrays)
    return path


def some_mnist(count: int = 4) -> dict[str, np.ndarray]:
    x = np.random.default_rng(0).integers(0, 256, (count, 28, 28), dtype=np.uint8)
    y = np.arange(count, dtype=np.uint8)
    return {"x_train": x, "y_train": y, "x_test": x[:2], "y_test": y[:2]}


class Touches:
    """Leaves a witness when unpickled."""

    def __init__(self, witness: Path) -> None:
        self.witness = witness

    def __reduce__(self) -> tuple[object, tuple[str]]:
        import os

        return os.system, (f"touch {self.witness}",)


def test_import_is_light() -> None:
    code = (
        "import sys, exhume.data, exhume.data.survey, exhume.cli.data;"
        "print([m for m in ('torch', 'sklearn', 'scipy', 'matplotlib') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_npz_round_trip(tmp_path: Path) -> None:
    arrays = some_mnist()
    path = write_npz(tmp_path / "mnist.npz", **arrays)
    assert npz_keys(path) == tuple(arrays)
    assert npz_shape(path, "x_train") == (4, 28, 28)
    np.testing.assert_array_equal(npz_array(path, "x_test"), arrays["x_test"])
    data = load("mnist", folder=tmp_path)
    assert isinstance(data, DataSet)
    assert (data.name, data.task, data.value_range) == ("mnist", Task.MULTICLASS, (0.0, 1.0))
    assert data.source == str(path)
    np.testing.assert_array_equal(data.train.x, arrays["x_train"].astype(np.float32) / 255)
    assert data.train.x.dtype == np.float32
    assert not data.train.x.flags.writeable
    assert data.test is not None
    assert len(data.test) == 2


def test_every_byte_keeps_its_value(tmp_path: Path) -> None:
    x = np.resize(np.arange(256, dtype=np.uint8), (1, 28, 28))
    write_npz(tmp_path / "mnist.npz", x_train=x, y_train=np.zeros(1, np.int16))
    pixels = load("mnist", folder=tmp_path).train.x.ravel()[:256]
    # The nearest float32 to k/255, as double precision finds it.
    np.testing.assert_array_equal(pixels, (np.arange(256) / 255).astype(np.float32))


def test_olivetti_is_one_part(tmp_path: Path) -> None:
    write_npz(
        tmp_path / "olivetti.npz",
        x=np.ones((3, 64, 64), np.uint8),
        y=np.array([0, 39, 1], np.uint8),
    )
    data = load("olivetti", folder=tmp_path)
    assert data.test is None
    assert data.classes is None
    assert data.train.labels.tolist() == [0, 39, 1]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"x_train": None}, "has no array 'x_train'; it holds y_train, x_test, y_test"),
        ({"y_test": None}, "has no array 'y_test'"),
        ({"x_test": None}, "has no array 'x_test'"),
        ({"x_train": np.zeros((4, 28, 28))}, r"\(uint8\), got float64"),
        ({"x_train": np.zeros((4, 784), np.uint8)}, "got 4×784"),
        ({"x_train": np.zeros((), np.uint8)}, "images must have shape"),
        ({"y_train": np.zeros(3, np.uint8)}, "must be 4 integers"),
        ({"y_train": np.zeros(4)}, "of float64"),
        ({"y_train": np.array([0, -1, 0, 0])}, "label -1 of image 1"),
        ({"y_train": np.array([0, 0, 0, 10], np.uint64)}, "label 10 of image 3"),
        ({"classes": np.array(["nine", "eight"])}, "'classes' are not those of mnist"),
        ({"classes": np.arange(10)}, "'classes' must be a list of names"),
    ],
)
def test_wrong_archives(tmp_path: Path, change: dict[str, object], complaint: str) -> None:
    arrays = {key: value for key, value in {**some_mnist(), **change}.items() if value is not None}
    path = write_npz(tmp_path / "mnist.npz", **arrays)
    with pytest.raises(InputError, match=complaint) as caught:
        load("mnist", folder=tmp_path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not really", b"\x93NUMPY\x01\x00", b"text"])
def test_not_an_archive(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "mnist.npz").write_bytes(content)
    with pytest.raises(InputError, match=r"mnist\.npz: is (empty|not a NumPy \.npz archive)"):
        load("mnist", folder=tmp_path)


def test_every_cut_of_an_archive_is_noticed(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "mnist.npz", **some_mnist(1))
    whole = path.read_bytes()
    for cut in range(0, len(whole), 97):
        path.write_bytes(whole[:cut])
        with pytest.raises(InputError, match=r"mnist\.npz"):
            load("mnist", folder=tmp_path)


def test_a_corrupted_archive_is_noticed(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "mnist.npz", **some_mnist(1))
    content = bytearray(path.read_bytes())
    content[300] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"mnist\.npz"):
        load("mnist", folder=tmp_path)


def test_a_member_that_is_no_array(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "mnist.npz", "w") as archive:
        archive.writestr("x_train.npy", "not an array")
    with pytest.raises(InputError, match="with an array 'x_train'"):
        load("mnist", folder=tmp_path)


def test_pickled_objects_are_refused_unread(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    hostile = np.array([Touches(witness)], dtype=object)
    write_npz(tmp_path / "mnist.npz", **{**some_mnist(), "x_train": hostile})
    with pytest.raises(InputError, match="'x_train' holds pickled Python objects"):
        load("mnist", folder=tmp_path)
    # A whole pickle under the archive's name, which numpy.load would hand to pickle.
    (tmp_path / "mnist.npz").write_bytes(pickle.dumps(Touches(witness)))
    with pytest.raises(InputError, match="is not a NumPy"):
        load("mnist", folder=tmp_path)
    assert not witness.exists()
    with np.load(write_npz(tmp_path / "bait.npz", x=hostile), allow_pickle=True) as archive:
        archive["x"]
    assert witness.exists(), "the bait would have worked"


def test_unknown_name() -> None:
    with pytest.raises(
        InputError, match=r"'mnits' \(did you mean 'mnist'\?\); known are"
    ) as caught:
        load("mnits")
    assert "olivetti" in str(caught.value)
    with pytest.raises(InputError, match="no data set is called 'zzz'; known are"):
        load("zzz")


def test_missing_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'mnist' is missing: set EXHUME_DATA .*mnist\.npz"):
        load("mnist")
    with pytest.raises(InputError, match="dataset-fashion-mnist"):
        load("fashion-mnist", folder=tmp_path)
    with pytest.raises(InputError, match=r"cifar-10-batches-bin/ .*data_batch_1\.bin"):
        load("cifar-10", folder=tmp_path)


def test_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_npz(tmp_path / "mnist.npz", **some_mnist())
    monkeypatch.setenv("EXHUME_DATA", str(tmp_path))
    assert load("mnist").source == str(tmp_path / "mnist.npz")
    monkeypatch.setenv("EXHUME_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match=r"EXHUME_DATA is '.*nowhere'"):
        load("mnist")
    # A folder given wins over the variable; what needs no folder doesn't care.
    assert len(load("mnist", folder=tmp_path).train) == 4
    assert len(load("fashion-mnist-small").train) == 3000
    with pytest.raises(InputError, match="does not exist or is not a folder"):
        load("mnist", folder=tmp_path / "mnist.npz")


def test_system_folders_come_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, system = tmp_path / "own", tmp_path / "system"
    for folder in (own, system):
        folder.mkdir()
        write_npz(folder / "mnist.npz", **some_mnist())
    monkeypatch.setattr("exhume.data.folder.SYSTEM_FOLDERS", (system,))
    assert load("mnist").source == str(system / "mnist.npz")
    monkeypatch.setenv("EXHUME_DATA", str(own))
    assert load("mnist").source == str(own / "mnist.npz")


@pytest.mark.parametrize(
    ("name", "task", "shape", "value_range"),
    [
        ("breast-cancer", Task.BINARY, (569, 30), None),
        ("wine", Task.MULTICLASS, (178, 13), None),
        ("diabetes", Task.REGRESSION, (442, 10), None),
        ("diabetes-counts", Task.COUNTS, (442, 10), None),
        ("digits", Task.MULTICLASS, (1797, 8, 8), (0.0, 1.0)),
        ("diabetes-mixed", Task.BINARY, (442, 28), None),
    ],
)
def test_tables(
    name: str, task: Task, shape: tuple[int, ...], value_range: tuple[float, float] | None
) -> None:
    data = load(name)
    assert (data.task, data.train.x.shape, data.value_range) == (task, shape, value_range)
    assert data.train.x.dtype == np.float64
    assert data.train.labels.dtype == (np.float64 if task is Task.REGRESSION else np.int64)
    assert data.test is None
    check_for_training(data.train, task)
    source = next(source for source in SOURCES if source.name == name)
    found = source.find(())
    assert found is not None
    assert (found.sizes.train, *source.record_shape) == shape
    if data.classes is not None:
        assert set(data.train.labels) == set(range(len(data.classes)))


def test_table_values() -> None:
    # First patient of scikit-learn's raw diabetes table: age 59, sex 2, BMI 32.1, …; response 151.
    diabetes = load("diabetes-counts").train
    assert diabetes.x[0].tolist() == [59, 2, 32.1, 101, 157, 93.2, 38, 4, 4.8598, 87]
    assert diabetes.labels[0] == 151
    assert (diabetes.labels.min(), diabetes.labels.max()) == (25, 346)
    np.testing.assert_array_equal(load("diabetes").train.labels, diabetes.labels)
    mixed = load("diabetes-mixed")
    assert mixed.schema is not None
    assert mixed.schema.told(mixed.train.x[0]) == (
        "age 50-59, sex 2, bmi obese, bp 101 mm Hg, tc 157 mg/dl, ldl optimal, hdl low, tch 4, "
        "ltg 4.8598, glucose 80-89"
    )
    assert mixed.train.labels[0] == 1
    digits = load("digits").train.x
    assert (digits.min(), digits.max()) == (0.0, 1.0)


def test_names_are_distinct() -> None:
    assert len(set(names())) == len(names()) == 12


@pytest.mark.parametrize(
    ("name", "train", "test"),
    [
        ("mnist", 60000, 10000),
        ("fashion-mnist", 60000, 10000),
        ("cifar-10", 20000, 2000),
        ("cifar-100", 10000, 1000),
        ("olivetti", 400, None),
    ],
)
def test_real_data(real_data: Path, name: str, train: int, test: int | None) -> None:
    try:
        data = load(name, folder=real_data)
    except InputError as error:
        if "is missing" not in str(error):
            raise
        pytest.skip(str(error))
    assert len(data.train) >= train
    assert (None if data.test is None else len(data.test) >= test) == (
        None if test is None else True
    )
    assert (data.train.x.min(), 0.9 < data.train.x.max() <= 1) == (0.0, True)
    check_for_training(data.train, data.task)
