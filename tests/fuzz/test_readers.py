"""Damaged files of every kind that is read: an answer or one line, never a traceback.

``EXHUME_FUZZ=1000 python -m pytest tests/fuzz -q`` reads a thousand inputs of each kind.
"""

from __future__ import annotations

import gzip
import io
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save as safetensors_bytes
from tests.audit import small
from tests.data.test_cifar import binary_bytes, python2_pickle, some_images
from tests.fuzz.mutations import answers_or_refuses, damaged, fuzzed

from exhume.audit import Serial, run, summarise
from exhume.cli.bound.prior import PriorOptions, blind_success
from exhume.data import read_records
from exhume.data.array_files import read_arrays
from exhume.data.cifar import read_cifar_binary
from exhume.data.cifar_pickle import read_cifar_pickle
from exhume.data.idx import read_idx, read_idx_shape
from exhume.data.lpips_weights import check_lpips_weights
from exhume.data.npz import NpzLayout
from exhume.runlog.store import Store

X = np.random.default_rng(0).normal(size=(6, 3))
Y = np.array([0, 1, 0, 1, 1, 0])


def npz() -> bytes:
    stream = io.BytesIO()
    np.savez(stream, x=X, y=Y)
    return stream.getvalue()


def compressed() -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(stream, x_train=np.zeros((2, 28, 28), np.uint8), y_train=Y[:2])
    return stream.getvalue()


def npy() -> bytes:
    stream = io.BytesIO()
    np.save(stream, X)
    return stream.getvalue()


def csv() -> bytes:
    rows = [",".join([*map(str, x), str(y)]) for x, y in zip(X, Y, strict=True)]
    return "\n".join(["a,b,c,label", *rows, ""]).encode()


def checkpoint(**options: bool) -> bytes:
    stream = io.BytesIO()
    torch.save(
        {"model_state_dict": torch.nn.Linear(3, 2).state_dict(), "epoch": 3}, stream, **options
    )
    return stream.getvalue()


def tensors() -> bytes:
    return safetensors_bytes({"x": X, "y": Y.astype(np.float32)})


def idx() -> bytes:
    return bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 4]) + bytes(range(32))


IMAGES = some_images(2)
READERS: dict[str, tuple[str, Callable[[], bytes], Callable[[Path], object]]] = {
    "records.csv": (".csv", csv, read_records),
    "records.npz": (".npz", npz, read_records),
    "records.npy": (".npy", npy, read_records),
    "records.safetensors": (".safetensors", tensors, read_records),
    "arrays.npz": (".npz", npz, read_arrays),
    "arrays.safetensors": (".safetensors", tensors, read_arrays),
    "checkpoint.pt": (".pt", checkpoint, read_arrays),
    "old checkpoint.pth": (
        ".pth",
        lambda: checkpoint(_use_new_zipfile_serialization=False),
        read_arrays,
    ),
    "idx": ("-idx3-ubyte", idx, lambda path: (read_idx_shape(path), read_idx(path))),
    "idx.gz": ("-idx3-ubyte.gz", lambda: gzip.compress(idx(), mtime=0), read_idx),
    "cifar binary": (
        ".bin",
        lambda: binary_bytes(IMAGES, np.array([1, 2], np.uint8)),
        lambda path: read_cifar_binary(path, label_bytes=1),
    ),
    "cifar python": (
        "",
        lambda: python2_pickle(IMAGES, [1, 2]),
        lambda path: read_cifar_pickle(path, label_key="labels"),
    ),
    "mnist.npz": (
        ".npz",
        compressed,
        lambda path: (NpzLayout((path.name,)).sizes(path), NpzLayout((path.name,)).read(path)),
    ),
    "lpips.npz": (".npz", npz, check_lpips_weights),
    "prior.npy": (
        ".npy",
        npy,
        lambda path: blind_success(PriorOptions(prior="pool", file=path, eta=1.0)),
    ),
}


@pytest.mark.parametrize("name", READERS)
@fuzzed
@given(data=st.data())
def test_a_damaged_file(
    name: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    ending, whole, read = READERS[name]
    path = tmp_path_factory.getbasetemp() / f"fuzzed{ending}"
    path.write_bytes(data.draw(damaged(whole())))
    answers_or_refuses(lambda: read(path))


@pytest.mark.parametrize("name", sorted(set(READERS) - {"lpips.npz"}))
def test_an_undamaged_file(name: str, tmp_path: Path) -> None:
    """What is damaged is a file that can be read: the damage is not lost in a first refusal."""
    ending, whole, read = READERS[name]
    path = tmp_path / f"whole{ending}"
    path.write_bytes(whole())
    assert read(path) is not None


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    run(small.plan(small.PLAIN, small.audit(2)), folder, Serial())
    # Without a write-ahead log, the database is one file.
    with sqlite3.connect(folder / "records.sqlite") as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        database.execute("PRAGMA journal_mode=DELETE")
    database.close()
    return folder


def summary_of(folder: Path) -> object:
    with Store.open(folder) as store:
        return summarise(store.run())


TEXTS = [("meta", "value"), ("settings", "facts"), ("records", "scores"), ("records", "stats")]


class TestRunFolders:
    @fuzzed
    @given(data=st.data())
    def test_a_damaged_database(self, finished: Path, data: st.DataObject) -> None:
        path = finished / "records.sqlite"
        whole = path.read_bytes()
        try:
            path.write_bytes(data.draw(damaged(whole)))
            answers_or_refuses(lambda: summary_of(finished))
        finally:
            path.write_bytes(whole)

    @fuzzed
    @given(data=st.data())
    def test_damaged_json_in_it(self, finished: Path, data: st.DataObject) -> None:
        """A database that is sound, with a text in it that is not."""
        path = finished / "records.sqlite"
        whole = path.read_bytes()
        table, column = data.draw(st.sampled_from(TEXTS))
        try:
            with sqlite3.connect(path) as database:
                (text,) = database.execute(f"SELECT {column} FROM {table}").fetchone()
                changed = data.draw(damaged(text.encode())).decode("utf-8", "replace")
                other = json.dumps(data.draw(st.recursive(st.integers() | st.text(), st.lists)))
                chosen = data.draw(st.sampled_from([changed, other]))
                database.execute(f"UPDATE {table} SET {column} = ?", (chosen,))
            database.close()
            answers_or_refuses(lambda: summary_of(finished))
        finally:
            path.write_bytes(whole)
