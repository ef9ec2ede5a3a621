"""Frames of polars and Parquet files, with every kind of column, from the data to the verdict."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from pyarrow import parquet
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from tests.cli.command import invoke

import exhume
from exhume import InputError
from exhume.data.frames import cells_of_frame, read_table, table_of
from exhume.protocol.schema import ColumnKind
from exhume.training.frames import Frames

ROWS = 60


def clinic(rows: int = ROWS) -> pl.DataFrame:
    rng = np.random.default_rng(4)
    first = datetime.date(2020, 1, 1)
    return pl.DataFrame(
        {
            "bmi": [
                None if i % 9 == 4 else round(float(v), 1)
                for i, v in enumerate(rng.normal(26, 4, rows))
            ],
            "smoker": rng.choice(["never", "former", "current"], rows),
            "insured": (rng.random(rows) < 0.7).tolist(),
            "visit": [first + datetime.timedelta(days=int(d)) for d in rng.integers(0, 900, rows)],
            "outcome": np.where(rng.random(rows) < 0.5, "yes", "no"),
        }
    )


KINDS = ["continuous", "categorical", "boolean", "date"]


def test_frames_files_and_libraries_agree(tmp_path):
    frame = clinic()
    frame.write_parquet(tmp_path / "own.parquet")
    frame.write_csv(tmp_path / "own.csv")
    cells, library = cells_of_frame(frame.drop("outcome"))
    tables = [
        table_of(cells, frame["outcome"].to_list(), label="outcome", library=library),
        read_table(tmp_path / "own.parquet"),
        read_table(tmp_path / "own.csv"),
    ]
    assert library == "polars"
    assert [one.kind.value for one in tables[0].schema.columns] == KINDS
    for other in tables[1:]:
        assert other.schema == tables[0].schema
        assert np.array_equal(other.records.x, tables[0].records.x)
        assert np.array_equal(other.records.labels, tables[0].records.labels)


@pytest.mark.parametrize("reader", ["pyarrow", "polars"])
def test_either_reads_parquet(tmp_path, monkeypatch, reader):
    import importlib.util

    real, path = importlib.util.find_spec, tmp_path / "own.parquet"
    parquet.write_table(clinic().to_arrow(), path)
    hidden = {"pyarrow": "polars", "polars": "pyarrow"}[reader]
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name, *a: None if name == hidden else real(name, *a)
    )
    table = read_table(path)
    assert [one.kind.value for one in table.schema.columns] == KINDS
    assert [one.missing for one in table.schema.columns] == [True, False, False, False]


def test_categories_and_stamps_of_polars():
    stamps = [datetime.datetime(2024, 5, 1, 8, 30), None, datetime.datetime(2024, 5, 2, 9, 0)]
    frame = pl.DataFrame({"at": stamps, "site": pl.Series(["A", "B", "A"], dtype=pl.Categorical)})
    table = table_of(*cells_of_frame(frame)[:1], [0, 1, 0], library="polars")
    assert [one.kind for one in table.schema.columns] == [ColumnKind.DATE, ColumnKind.CATEGORICAL]
    assert table.schema.row(table.records.x[0]) == (np.datetime64("2024-05-01T08:30:00"), "A")
    made = Frames(table.schema, "polars")(table.records.x)
    assert isinstance(made, pl.DataFrame)
    assert made["site"].to_list() == ["A", "B", "A"]
    assert made["at"].to_list() == stamps


def test_an_audit_of_a_polars_frame(tmp_path):
    frame = clinic()
    steps = make_column_transformer((SimpleImputer(), ["bmi"]), (OneHotEncoder(), ["smoker"]))
    run = exhume.sklearn.audit(
        make_pipeline(steps, GaussianNB()),
        frame.select("bmi", "smoker"),
        frame["outcome"],
        targets=2,
        attacks=["refit"],
        out=tmp_path / "run",
        quiet=True,
    )
    assert run.log.settings[0].data.columns == ("bmi", "smoker")
    assert "60 rows: 58 known, 2 targets" in str(run)
    assert run.summary.brackets[0].reached.successes == 2


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> Path:
    """A fitted pipeline in model.skops beside the Parquet file that it was fitted on."""
    folder, frame = tmp_path_factory.mktemp("parquet"), clinic()
    frame.write_parquet(folder / "patients.parquet")
    steps = make_column_transformer((SimpleImputer(), ["bmi"]), (OneHotEncoder(), ["smoker"]))
    known = frame.to_pandas()
    model = make_pipeline(steps, GaussianNB()).fit(known[["bmi", "smoker"]], known["outcome"])
    exhume.sklearn.save(model, folder / "model.skops")
    return folder


def test_the_command_reads_parquet(stored, tmp_path):
    shown = invoke("data", stored / "patients.parquet")
    assert shown.code == 0, shown.error
    assert "current, former, never" in shown.out
    table = ("--data", stored / "patients.parquet", "--label", "outcome")
    out = ("--out", tmp_path / "run", "--targets", "2", "--quiet", "--workers", "1")
    done = invoke("audit", stored / "model.skops", *table, *out)
    assert done.code == 0, done.error
    assert "60 rows: 58 known, 2 targets" in done.out
    run = exhume.open_run(tmp_path / "run")
    assert run.summary.brackets[0].reached.successes == 2
    threat = " ".join(run.log.settings[0].threat)
    assert "A fit on these rows gives the numbers in model.skops." in threat


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"PAR1 but not really", "patients.parquet"),
        (b"", "patients.parquet"),
    ],
    ids=["damaged", "empty"],
)
def test_a_damaged_file_is_one_line(tmp_path, content, complaint):
    path = tmp_path / "patients.parquet"
    path.write_bytes(content)
    refused = invoke("data", path)
    assert refused.code == 2
    assert complaint in refused.error
    assert "Traceback" not in refused.error
    assert len(refused.error.strip().splitlines()) <= 2


def test_lists_in_a_column_are_refused():
    frame = pl.DataFrame({"tags": [["a"], ["b", "c"]], "n": [1, 2]})
    with pytest.raises(InputError, match="column 'tags'"):
        table_of(cells_of_frame(frame)[0], [0, 1], library="polars")


def test_pandas_with_arrow_columns():
    frame = clinic().to_pandas(use_pyarrow_extension_array=True)
    assert isinstance(frame, pd.DataFrame)
    own, _ = cells_of_frame(clinic())
    assert cells_of_frame(frame)[0] == own
