"""The user's own files: what is read, and what is said about what can't be."""

from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from exhume.data import read_records
from exhume.protocol.errors import InputError

X = np.array([[1.5, 2.0], [3.0, -4.25], [0.0, 1e-3]])
Y = np.array([0, 1, 1])
WITH_NAN = np.where(X == 3, np.nan, X)
WITH_INFINITY = np.array([0, np.inf, 1])


def write(path: Path, content: object) -> Path:
    arrays = content if isinstance(content, dict) else {}
    match path.suffix:
        case ".npz":
            np.savez(path, **arrays)
        case ".safetensors":
            safetensors.numpy.save_file(arrays, path)
        case ".npy":
            np.save(path, content, allow_pickle=True)
        case _:
            path.write_text(str(content))
    return path


def complaint(path: Path, *, label: str | None = None) -> str:
    with pytest.raises(InputError) as caught:
        read_records(path, label=label)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


@pytest.mark.parametrize("ending", [".npz", ".safetensors"])
def test_arrays(tmp_path: Path, ending: str) -> None:
    records = read_records(write(tmp_path / f"own{ending}", {"x": X, "y": Y}))
    np.testing.assert_array_equal(records.x, X)
    assert records.labels.tolist() == [0, 1, 1]
    unlabelled = read_records(write(tmp_path / f"x{ending}", {"x": X}))
    assert unlabelled.y is None


def test_npy(tmp_path: Path) -> None:
    records = read_records(write(tmp_path / "own.npy", X))
    np.testing.assert_array_equal(records.x, X)
    assert records.y is None


@pytest.mark.parametrize(
    ("given_type", "read_type"),
    [("u1", "f8"), ("i8", "f8"), ("?", "f8"), ("f2", "f8"), (">f8", "f8"), ("f4", "f4")],
)
def test_types(tmp_path: Path, given_type: str, read_type: str) -> None:
    x = np.array([[0, 1], [1, 1]]).astype(given_type)
    records = read_records(write(tmp_path / "own.npz", {"x": x, "y": x[:, 0]}))
    assert records.x.dtype == np.dtype(read_type)
    np.testing.assert_array_equal(records.x, [[0, 1], [1, 1]])
    floating = np.dtype(given_type).kind == "f"
    assert records.labels.dtype == (np.float64 if floating else np.int64)


@given(
    values=hnp.arrays(
        np.float64,
        hnp.array_shapes(min_dims=2, max_dims=2, min_side=2, max_side=6),
        elements=st.floats(allow_nan=False, allow_infinity=False),
    )
)
@settings(deadline=None, max_examples=50)
def test_csv_round_trip(tmp_path_factory: pytest.TempPathFactory, values: np.ndarray) -> None:
    path = tmp_path_factory.mktemp("csv") / "own.csv"
    lines = [",".join(f"c{i}" for i in range(values.shape[1]))]
    lines += [",".join(repr(float(value)) for value in row) for row in values]
    path.write_text("\n".join(lines))
    records = read_records(path)
    np.testing.assert_array_equal(records.x, values[:, :-1])
    np.testing.assert_array_equal(records.labels, values[:, -1])
    named = read_records(path, label="c0")
    np.testing.assert_array_equal(named.x, values[:, 1:])
    np.testing.assert_array_equal(named.labels, values[:, 0])


def test_csv_as_spreadsheets_write_it(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_bytes('\ufeffage, "the, sex",ill\r\n61,1,0\r\n\r\n47.5, 2 ,1\r\n'.encode())
    records = read_records(path)
    np.testing.assert_array_equal(records.x, [[61, 1], [47.5, 2]])
    assert records.labels.tolist() == [0, 1]
    assert records.labels.dtype == np.int64
    assert read_records(path, label="age").labels.dtype == np.float64


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("a\n1\n2\n", "at least two columns"),
        ("a;b\n1;2\n2;3\n", "separated by commas"),
        ("1,2\n3,4\n5,6\n", "first line is all numbers"),
        ("a,a,b\n1,2,3\n", "two columns are called 'a'"),
        ("a,b\n", "holds 0 record(s)"),
        ("a,b\n1,2\n", "holds 1 record(s)"),
        ("a,b\n1,2\n3\n", "line 3: has 1 cells, the header has 2 columns"),
        ("a,b\n1,2\n3,4,5\n", "line 3: has 3 cells"),
        ("a,b\n1,2\nx,4\n", "line 3, column 'a': holds 'x'"),
        (
            "a,b\n1,2\n3,yes\n",
            "line 3, column 'b': holds 'yes', which is not a finite number; code",
        ),
        ("a,b\n1,2\n,4\n", "line 3, column 'a': is empty"),
        ("a,b\n1,2\nnan,4\n", "line 3, column 'a': holds 'nan'"),
        ("a,b\n1,2\n3,-inf\n", "line 3, column 'b': holds '-inf'"),
        ("a,b\n1,2\n1_000,4\n", "line 3, column 'a': holds '1_000'"),
        ('a,b\n"1\n",2\n3,x\n', "line 4, column 'b'"),
    ],
)
def test_wrong_csv(tmp_path: Path, content: str, expected: str) -> None:
    assert expected in complaint(write(tmp_path / "own.csv", content))


def test_csv_label_and_encoding(tmp_path: Path) -> None:
    path = write(tmp_path / "own.csv", "age,ill\n1,2\n3,4\n")
    assert "no column 'sick'; its columns are age, ill" in complaint(path, label="sick")
    path.write_bytes(b"a,b\n\xff\xfe,1\n")
    assert "comma-separated table in UTF-8" in complaint(path)
    path.write_bytes(b"a,b\n1,\x00\n")
    complaint(path)


@pytest.mark.parametrize("ending", [".npz", ".safetensors"])
@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ({"data": X, "y": Y}, "has no array 'x' with the records; it holds data, y"),
        ({"x": X, "labels": Y}, "has no array 'y' with the labels; it holds"),
        ({"x": X[:, 0].copy(), "y": Y}, "x has shape (3,), expected (n, features, …)"),
        ({"x": X[:0], "y": Y[:0]}, "holds 0 record(s)"),
        ({"x": np.zeros((3, 0)), "y": Y}, "at least one value each"),
        ({"x": X[:1], "y": Y[:1]}, "holds 1 record(s) of shape (2,), expected at least 2"),
        ({"x": X, "y": Y[:2]}, "y has shape (2,), expected (3,)"),
        ({"x": X, "y": Y[:, None]}, "y has shape (3, 1), expected (3,)"),
        ({"x": WITH_NAN}, "x has 1 NaN or infinite value(s), the first in row 1, column 0 "),
        ({"x": X, "y": WITH_INFINITY}, "y has 1 NaN or infinite value(s), the first in row 1 "),
    ],
)
def test_wrong_arrays(
    tmp_path: Path, ending: str, arrays: dict[str, np.ndarray], expected: str
) -> None:
    assert expected in complaint(write(tmp_path / f"own{ending}", arrays))


def test_wrong_types(tmp_path: Path) -> None:
    assert "real numbers, got complex" in complaint(write(tmp_path / "c.npz", {"x": X * 1j}))
    assert "real numbers, got <U1" in complaint(write(tmp_path / "t.npz", {"x": np.array([["a"]])}))
    assert "pickled" in complaint(write(tmp_path / "o.npz", {"x": X.astype(object)}))
    assert "cannot be read as a NumPy .npy" in complaint(
        write(tmp_path / "o.npy", X.astype(object))
    )


def test_bfloat16(tmp_path: Path) -> None:
    header = b'{"x":{"dtype":"BF16","shape":[2,1],"data_offsets":[0,4]}}'
    path = tmp_path / "own.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    assert "bfloat16" in complaint(path)


@pytest.mark.parametrize("ending", [".npz", ".npy", ".csv", ".safetensors"])
def test_not_such_a_file(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"own{ending}"
    assert "no such file" in complaint(path)
    path.write_bytes(b"")
    assert "is empty" in complaint(path)
    path.write_bytes(b"\x80\x04\x00\x00 neither fish nor fowl \xff")
    complaint(path)
    path.unlink()
    path.mkdir()
    assert "is a folder" in complaint(path)


@pytest.mark.parametrize("ending", [".npz", ".npy", ".safetensors"])
def test_cut_short(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"own{ending}", X if ending == ".npy" else {"x": X, "y": Y})
    whole = path.read_bytes()
    for cut in range(1, len(whole), 13):
        path.write_bytes(whole[:cut])
        complaint(path)


def test_endings_and_labels(tmp_path: Path) -> None:
    assert "expected .npz, .npy, .csv or .safetensors" in complaint(tmp_path / "own.pkl")
    path = write(tmp_path / "own.npz", {"x": X, "y": Y})
    assert "for .csv files only" in complaint(path, label="ill")


def test_a_single_record_where_one_will_do(tmp_path: Path) -> None:
    path = write(tmp_path / "target.npz", {"x": X[:1], "y": Y[:1]})
    assert len(read_records(path, at_least=1)) == 1


def test_names_from_a_file_stay_on_one_line(tmp_path: Path) -> None:
    path = write(tmp_path / "own.npz", {"x": X, "y\n\x1b[2J": Y})
    assert "it holds x, 'y\\n\\x1b[2J'" in complaint(path)
    many = write(tmp_path / "many.npz", {f"k{i}": Y for i in range(100)})
    assert complaint(many).endswith("k19, …")


def test_a_damaged_header(tmp_path: Path) -> None:
    path = write(tmp_path / "own.npy", X)
    path.write_bytes(path.read_bytes().replace(b"False", b"(((((", 1))
    assert "cannot be read as a NumPy .npy array" in complaint(path)
