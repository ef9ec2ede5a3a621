"""CIFAR's binary and python versions: round trips, damage, and pickles that mean harm."""

import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from exhume.data import load
from exhume.data.cifar import read_cifar_binary
from exhume.data.cifar_pickle import read_cifar_pickle
from exhume.protocol.errors import InputError

IMAGES = hnp.arrays(np.uint8, st.tuples(st.integers(1, 3), st.just(32), st.just(32), st.just(3)))


def some_images(count: int = 3) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)


def as_planes(images: np.ndarray) -> np.ndarray:
    return np.concatenate([images[..., c].reshape(len(images), -1) for c in range(3)], axis=1)


def binary_bytes(images: np.ndarray, *labels: np.ndarray) -> bytes:
    """One column of ``labels`` for CIFAR-10; coarse and fine for CIFAR-100."""
    return np.concatenate([*(column[:, None] for column in labels), as_planes(images)], 1).tobytes()


def python2_pickle(images: np.ndarray, labels: list[int], label_key: bytes = b"labels") -> bytes:
    """A pickle as Python 2 and its NumPy wrote the official files: protocol 2, strings as bytes."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    count, content = len(images), as_planes(images).tobytes()
    data = (
        b"cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85q\tU\x01b\x87q\nR"
        b"q\x0b(K\x01" + b"J" + struct.pack("<i", count) + b"M\x00\x0c\x86q\x0c"
        b"cnumpy\ndtype\nq\rU\x02u1K\x00K\x01\x87q\x0eRq\x0f(K\x03U\x01|NNNJ\xff\xff\xff\xff"
        b"J\xff\xff\xff\xffK\x00tq\x10b\x89T"
        + struct.pack("<i", len(content))
        + content
        + b"tq\x11b"
    )
    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return (
        b"\x80\x02}q\x01(" + text(b"batch_label") + text(b"training batch 1 of 5")
        + text(label_key) + numbers + text(b"data") + data
        + text(b"filenames") + b"](" + text(b"leptodactylus_pentadactylus_s_000004.png") + b"eu."
    )  # fmt: skip


def write_cifar10(folder: Path) -> np.ndarray:
    folder.mkdir(parents=True)
    images = some_images(6)
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
    for i, name in enumerate(names):
        (folder / name).write_bytes(binary_bytes(images[i : i + 1], np.array([i], np.uint8)))
    return images


@given(images=IMAGES, data=st.data())
@settings(deadline=None, max_examples=30)
def test_binary_round_trip(
    tmp_path_factory: pytest.TempPathFactory, images: np.ndarray, data: st.DataObject
) -> None:
    columns = data.draw(st.integers(1, 2))
    labels = data.draw(hnp.arrays(np.uint8, (columns, len(images))))
    path = tmp_path_factory.mktemp("cifar") / "train.bin"
    path.write_bytes(binary_bytes(images, *labels))
    raw = read_cifar_binary(path, label_bytes=columns)
    np.testing.assert_array_equal(raw.images, images)
    np.testing.assert_array_equal(raw.labels, labels[-1])


@given(images=IMAGES, data=st.data())
@settings(deadline=None, max_examples=30)
def test_python_round_trip(
    tmp_path_factory: pytest.TempPathFactory, images: np.ndarray, data: st.DataObject
) -> None:
    labels = data.draw(st.lists(st.integers(0, 99), min_size=len(images), max_size=len(images)))
    path = tmp_path_factory.mktemp("cifar") / "train"
    path.write_bytes(python2_pickle(images, labels, b"fine_labels"))
    raw = read_cifar_pickle(path, label_key="fine_labels")
    np.testing.assert_array_equal(raw.images, images)
    assert raw.labels.tolist() == labels


def test_python2_pickle_is_what_numpy_reads() -> None:
    """The writer above is right: NumPy's own unpickling agrees with it."""
    images = some_images()
    content = pickle.loads(python2_pickle(images, [0, 1, 2]), encoding="bytes")
    np.testing.assert_array_equal(content[b"data"], as_planes(images))
    assert content[b"labels"] == [0, 1, 2]


@pytest.mark.parametrize("protocol", [3, 4])
def test_pickles_rewritten_by_python_3(tmp_path: Path, protocol: int) -> None:
    images = some_images()
    path = tmp_path / "data_batch_1"
    path.write_bytes(pickle.dumps({"data": as_planes(images), "labels": [3, 1, 2]}, protocol))
    np.testing.assert_array_equal(read_cifar_pickle(path, label_key="labels").images, images)


@given(cut=st.integers(0, 3 * 3073 - 1))
@settings(deadline=None, max_examples=50)
def test_a_cut_binary_file_is_noticed(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    path = tmp_path_factory.mktemp("cifar") / "data_batch_1.bin"
    whole = binary_bytes(some_images(), np.zeros(3, np.uint8))
    path.write_bytes(whole[:cut])
    if cut and cut % 3073 == 0:
        # A cut between records is not distinguishable from a shorter file.
        assert len(read_cifar_binary(path, label_bytes=1).images) == cut // 3073
        return
    with pytest.raises(InputError, match=r"data_batch_1\.bin: (is empty|holds .* truncated)"):
        read_cifar_binary(path, label_bytes=1)


@given(data=st.data())
@settings(deadline=None, max_examples=100)
def test_a_damaged_pickle_is_read_whole_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Whatever a flipped byte or a cut does, nothing but an InputError comes out."""
    images = some_images(1)
    content = bytearray(python2_pickle(images, [7]))
    place = data.draw(st.integers(0, 250))
    content[place] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("cifar") / "data_batch_1"
    path.write_bytes(bytes(content[: data.draw(st.sampled_from([len(content), place, 200]))]))
    try:
        outcome = str(read_cifar_pickle(path, label_key="labels").images.shape)
    except InputError as error:
        outcome = str(error)
    assert outcome == "(1, 32, 32, 3)" or str(path) in outcome


def _hostile_pickles(witness: Path) -> dict[str, bytes]:
    command = f"touch {witness}"

    class Runs:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            import os

            return os.system, (command,)

    class Evaluates:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return eval, (f"open({str(witness)!r}, 'w')",)

    planes = as_planes(some_images(1))
    objects = np.array([Runs()], dtype=object)
    line = command.encode()
    return {
        "bare": pickle.dumps(Runs(), 2),
        "evaluates": pickle.dumps({"data": planes, "labels": Evaluates()}, 4),
        "beside the data": pickle.dumps({b"data": planes, b"labels": [1], b"x": Runs()}, 4),
        "as the label": pickle.dumps({"data": planes, "labels": [Runs()]}, 4),
        "in an object array": pickle.dumps({"data": objects, "labels": [1]}, 4),
        "protocol 0": b"cos\nsystem\n(S'" + line + b"'\ntR.",
        "inst opcode": b"(S'" + line + b"'\nios\nsystem\n.",
        "obj opcode": b"(cos\nsystem\nS'" + line + b"'\no.",
        "stack_global": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c"
        + bytes([len(line)]) + line + b"\x85R.",
        "through numpy": b"cnumpy.testing._private.utils\nrunstring\n(S'1'\n}tR.",
        "builtins": b"cbuiltins\nexec\n(S'open(\"" + str(witness).encode() + b"\",\"w\")'\ntR.",
        "dotted": b"\x80\x04\x8c\x05numpy\x8c\x1bf2py.os.system.__call__.abc\x93.",
        "persistent id": b"Pabc\n.",
        "extension": b"\x82\x01.",
        "class of a stand-in": b"cnumpy\ndtype\nN}S'__setstate__'\ncnumpy\nndarray\ns\x86b.",
    }  # fmt: skip


HOSTILE = list(_hostile_pickles(Path("witness")))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_pickle_executes_nothing(tmp_path: Path, name: str) -> None:
    witness = tmp_path / "witness"
    path = tmp_path / "data_batch_1"
    path.write_bytes(_hostile_pickles(witness)[name])
    with pytest.raises(InputError, match="data_batch_1") as caught:
        read_cifar_pickle(path, label_key="labels")
    assert "binary version" in str(caught.value)
    assert not witness.exists()


def test_the_hostile_pickles_are_hostile(tmp_path: Path) -> None:
    """Without the guard they do run: the test above would notice."""
    for name in ("bare", "evaluates", "protocol 0", "inst opcode", "obj opcode", "stack_global"):
        witness = tmp_path / name.replace(" ", "_")
        pickle.loads(_hostile_pickles(witness)[name])
        assert witness.exists(), name


def test_a_pickle_that_asks_for_all_memory(tmp_path: Path) -> None:
    path = tmp_path / "data_batch_1"
    path.write_bytes(b"\x80\x02}r\xff\xff\xff\x7f.")
    with pytest.raises(InputError, match="2,147,483,647 memo entries"):
        read_cifar_pickle(path, label_key="labels")


def test_the_python_version_says_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "data_batch_1"

    def complaint(content: object) -> str:
        path.write_bytes(pickle.dumps(content, 4))
        with pytest.raises(InputError) as caught:
            read_cifar_pickle(path, label_key="labels")
        return str(caught.value)

    planes = as_planes(some_images())
    assert "holds a list" in complaint([1])
    assert "has no 'data'" in complaint({"labels": [1]})
    assert "has no 'labels'" in complaint({"data": planes})
    assert "'data' is not n×3072 bytes" in complaint({"data": planes[:, :-1], "labels": [1]})
    assert "'data' is not n×3072 bytes" in complaint({"data": planes.astype(float), "labels": [1]})
    assert "'data' is not n×3072 bytes" in complaint({"data": b"bytes", "labels": [1]})
    assert "whole numbers" in complaint({"data": planes, "labels": [1, 2, 300]})
    assert "whole numbers" in complaint({"data": planes, "labels": "abc"})


def test_load_cifar10(tmp_path: Path) -> None:
    images = write_cifar10(tmp_path / "cifar-10-batches-bin")
    data = load("cifar-10", folder=tmp_path)
    np.testing.assert_array_equal(np.round(data.train.x * 255), images[:5])
    assert data.train.labels.tolist() == [0, 1, 2, 3, 4]
    assert data.test is not None
    np.testing.assert_array_equal(np.round(data.test.x * 255), images[5:])
    assert data.classes is not None
    assert data.classes[6] == "frog"


def test_load_cifar10_python_version(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    images = some_images(6)
    for i, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        (folder / name).write_bytes(python2_pickle(images[i : i + 1], [i]))
    data = load("cifar-10", folder=tmp_path)
    np.testing.assert_array_equal(np.round(data.train.x * 255), images[:5])
    assert data.train.labels.tolist() == [0, 1, 2, 3, 4]


def test_a_missing_batch_is_an_error(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "cifar-10-batches-bin")
    (tmp_path / "cifar-10-batches-bin" / "data_batch_3.bin").unlink()
    with pytest.raises(InputError, match=r"data_batch_3\.bin: no such file"):
        load("cifar-10", folder=tmp_path)


def test_a_wrong_label_names_its_own_file(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "cifar-10-batches-bin")
    path = tmp_path / "cifar-10-batches-bin" / "data_batch_4.bin"
    path.write_bytes(binary_bytes(some_images(2), np.array([0, 10], np.uint8)))
    with pytest.raises(InputError, match=r"data_batch_4\.bin: label 10 of image 1"):
        load("cifar-10", folder=tmp_path)


def test_load_cifar100_takes_the_fine_label(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    coarse, fine = np.array([19, 0, 3], np.uint8), np.array([99, 4, 0], np.uint8)
    for name in ("train.bin", "test.bin"):
        (folder / name).write_bytes(binary_bytes(some_images(), coarse, fine))
    data = load("cifar-100", folder=tmp_path)
    assert data.train.labels.tolist() == [99, 4, 0]
    assert data.classes is not None
    assert [data.classes[i] for i in (99, 4, 0)] == ["worm", "beaver", "apple"]
