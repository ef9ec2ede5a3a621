"""The user's own records, from a file: .npz, .npy, .csv or .safetensors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from exhume.data.csv_table import read_csv_table
from exhume.data.npz import npz_array, npz_keys
from exhume.data.reading import explained, listed, require_file
from exhume.protocol.arrays import Array
from exhume.protocol.errors import InputError
from exhume.protocol.records import Records


def read_records(path: Path, *, label: str | None = None, at_least: int = 2) -> Records:
    """Read ``at_least`` or more records from a file; its extension gives the format.

    ``.npz`` and ``.safetensors`` contain x of shape (n, features, …) and, if there are labels, y of
    shape (n,); ``.npy`` contains only x. ``.csv`` has a header; the column named ``label``, or else
    the last, is y. No pickle is ever read. x becomes float64, unless it is float32; nothing is
    rescaled. y becomes int64 if it has an integer type, else float64. InputError names the file
    and, if possible, the row and column.
    """
    x, y = _read_arrays(Path(path), label)
    return _checked_records(x, y, Path(path), at_least)


def _read_arrays(path: Path, label: str | None) -> tuple[Array, Array | None]:
    kind = path.suffix.lower()
    if kind == ".csv":
        return read_csv_table(path, label=label)
    if label is not None:
        raise InputError(f"{path}: a label column can be named for .csv files only; here it is y")
    match kind:
        case ".npz":
            return _read_npz(path)
        case ".npy":
            return _read_npy(path), None
        case ".safetensors":
            return _read_safetensors(path)
    raise InputError(
        f"{path}: its extension {kind!r} is unknown; expected .npz, .npy, .csv or .safetensors"
    )


def _read_npz(path: Path) -> tuple[Array, Array | None]:
    keys = npz_keys(path)
    _check_keys(keys, path)
    return npz_array(path, "x"), npz_array(path, "y") if "y" in keys else None


def _read_npy(path: Path) -> Array:
    kind = "a NumPy .npy array"
    require_file(path, kind)
    with explained(path, kind), path.open("rb") as file:
        # read_array, unlike load, never falls back to anything else.
        return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


def _read_safetensors(path: Path) -> tuple[Array, Array | None]:
    from safetensors import SafetensorError, safe_open

    kind = "a safetensors file"
    require_file(path, kind)
    try:
        with explained(path, kind), safe_open(path, framework="numpy") as file:
            keys = tuple(file.keys())
            _check_keys(keys, path)
            return file.get_tensor("x"), file.get_tensor("y") if "y" in keys else None
    # NumPy has no bfloat16: that is the TypeError.
    except (SafetensorError, TypeError) as error:
        raise InputError(f"{path}: cannot be read as {kind}: {error}") from None


def _check_keys(keys: Sequence[str], path: Path) -> None:
    there = listed(keys)
    if "x" not in keys:
        raise InputError(f"{path}: has no array 'x' with the records; it holds {there}")
    # Labels under another name must not be dropped silently.
    if "y" not in keys and len(keys) > 1:
        raise InputError(f"{path}: has no array 'y' with the labels; it holds {there}")


def _checked_records(x: Array, y: Array | None, path: Path, at_least: int) -> Records:
    _check_numeric(x, "x", path)
    if x.ndim < 2:
        raise InputError(
            f"{path}: x has shape {x.shape}, expected (n, features, …); "
            "records of one feature have shape (n, 1)"
        )
    if not x.size or len(x) < at_least:
        raise InputError(
            f"{path}: holds {len(x)} record(s) of shape {x.shape[1:]}, "
            f"expected at least {at_least} with at least one value each"
        )
    _check_finite(x, "x", path)
    if y is not None:
        _check_numeric(y, "y", path)
        if y.shape != (len(x),):
            raise InputError(f"{path}: y has shape {y.shape}, expected ({len(x)},) to go with x")
        _check_finite(y, "y", path)
        y = y.astype(np.float64 if y.dtype.kind == "f" else np.int64)
    return Records(x.astype(np.float32 if x.dtype.name == "float32" else np.float64), y)


def _check_numeric(array: Array, what: str, path: Path) -> None:
    if array.dtype.kind not in "biuf":
        raise InputError(f"{path}: {what} must hold real numbers, got {array.dtype}")


def _check_finite(array: Array, what: str, path: Path) -> None:
    if array.dtype.kind != "f" or np.isfinite(array).all():
        return
    wrong = np.argwhere(~np.isfinite(array))
    row, *columns = (int(i) for i in wrong[0])
    column = f", column {', '.join(str(i) for i in columns)}" if columns else ""
    raise InputError(
        f"{path}: {what} has {len(wrong)} NaN or infinite value(s), the first in row {row}{column} "
        "(counted from 0); every value must be a finite number"
    )
