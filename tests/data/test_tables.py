"""Tables as people have them: columns of every kind, from files and frames, and bad ones."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from tests.cli.command import invoke

from exhume import InputError
from exhume.data.frames import cells_of_frame, read_table, table_of
from exhume.data.infer_schema import ColumnWish, notes_on
from exhume.protocol.schema import ColumnKind
from exhume.training.frames import Frames, dtypes_of

CSV = """age,bmi,smoker,insured,visit,outcome
41,29.9,former,true,2020-01-02,yes
35,22.1,never,false,2020-02-02,no
50,,never,true,2020-03-02,no
61,31.2,current,true,,yes
29,20.3,never,false,2020-05-12,no
"""


def written(tmp_path, text=CSV, name="patients.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


class TestSchema:
    def test_is_inferred_from_a_file(self, tmp_path):
        schema = read_table(written(tmp_path)).schema
        kinds = [column.kind for column in schema.columns]
        assert kinds == [
            ColumnKind.INTEGER,
            ColumnKind.CONTINUOUS,
            ColumnKind.CATEGORICAL,
            ColumnKind.BOOLEAN,
            ColumnKind.DATE,
        ]
        assert [column.missing for column in schema.columns] == [False, True, False, False, True]
        assert schema.columns[2].levels == ("current", "former", "never")
        assert schema.label == "outcome"

    def test_cells_come_back(self, tmp_path):
        table = read_table(written(tmp_path))
        rows = [table.schema.row(x) for x in table.records.x]
        assert rows[0] == (41, 29.9, "former", True, np.datetime64("2020-01-02"))
        assert rows[2] == (50, None, "never", True, np.datetime64("2020-03-02"))
        assert rows[3][4] is None
        assert table.records.labels.tolist() == ["yes", "no", "no", "yes", "no"]

    def test_a_frame_has_the_schema_of_its_file(self, tmp_path):
        path = written(tmp_path)
        frame = pd.read_csv(path, parse_dates=["visit"])
        answers = frame.pop("outcome").tolist()
        cells, library = cells_of_frame(frame)
        of_frame = table_of(cells, answers, label="outcome", library=library)
        of_file = read_table(path)
        assert of_frame.schema == of_file.schema
        assert np.array_equal(of_frame.records.x, of_file.records.x)

    def test_frames_are_made_as_they_were(self):
        frame = pd.DataFrame(
            {"n": [1, 2, 3], "x": [0.5, np.nan, 2.0], "s": pd.Categorical(["a", "b", None])}
        )
        cells, library = cells_of_frame(frame)
        table = table_of(cells, [0, 1, 0], library=library)
        again = Frames(table.schema, library, dtypes_of(frame, table.schema))(table.records.x)
        pd.testing.assert_frame_equal(again, frame)

    def test_what_the_user_says_goes_first(self, tmp_path):
        wishes = {
            "age": ColumnWish("continuous", unit="years"),
            "insured": ColumnWish("categorical"),
            "visit": ColumnWish("ignored"),
        }
        schema = read_table(written(tmp_path), wishes=wishes).schema
        assert schema.names == ("age", "bmi", "smoker", "insured")
        assert schema.columns[0].kind is ColumnKind.CONTINUOUS
        assert schema.columns[3].levels == ("false", "true")
        assert schema.told(read_table(written(tmp_path), wishes=wishes).records.x[0]) == (
            "age 41 years, bmi 29.9, smoker former, insured true"
        )

    def test_all_columns_weigh_the_same(self):
        cells = {"x": [0.0, 1.0, 2.0, 3.0], "s": list("abcd")}
        table = table_of(cells, [0, 1, 0, 1])
        standard = table.records.x / table.schema.scale(table.records.x)
        apart = standard[:, None] - standard[None]
        squares = np.square(apart).mean(axis=(0, 1))
        assert squares[0] == pytest.approx(squares[1:].sum())

    def test_missing_cells_tell_no_statistic(self):
        # What stands for a missing number is known to the adversary.
        cells = {"x": [17.31, 18.92, None, 23.77], "s": list("abab")}
        column = table_of(cells, [0, 1, 0, 1]).schema.columns[0]
        assert column.fill == 20.0

    def test_rows_without_a_label_are_left_out(self):
        table = table_of({"x": [1.0, 2.0, 3.0]}, [1, None, 0])
        assert len(table.records) == 2
        assert table.left_out == 1


class TestBadInput:
    @pytest.mark.parametrize(
        ("text", "complaint"),
        [
            (CSV.replace("age,bmi", "age,age"), "two columns are called 'age'"),
            (CSV.replace("50,,", "fifty,,"), "column 'age': holds 41 in row 2 and 'fifty'"),
            ("a,b,y\n1,,0\n2,,1\n", "column 'b': every cell is missing"),
            ("a,y\n1,0\n2\n", "line 3: has 1 cells, the header has 2"),
            ("1,2\n3,4\n", "its first line is all numbers"),
            ("a,y\n1,no\n2,1\n", "mixes numbers and text: 'no' and 1"),
            ("a,y\n1,2020-01-01\n2,2020-01-02\n", "holds dates"),
            ("a,y\n1,\n2,1\n", "1 rows have a label"),
            ("a\n1\n2\n", "at least two columns"),
        ],
        ids=["twice", "mixed", "empty", "short", "no header", "labels", "dates", "unlabelled", "1"],
    )
    def test_is_one_clear_line(self, tmp_path, text, complaint):
        with pytest.raises(InputError, match=complaint) as error:
            read_table(written(tmp_path, text))
        assert "\n" not in str(error.value)

    @pytest.mark.parametrize(
        ("wish", "complaint"),
        [
            ({"smoker": ColumnWish("categorical", ("never", "former"))}, "row 5: holds 'current'"),
            ({"bmi": ColumnWish("integer")}, "holds 29.9, which is not integer"),
            ({"height": ColumnWish("integer")}, "has no column 'height'"),
            (
                {name: ColumnWish("ignored") for name in ("age", "bmi", "smoker")}
                | {name: ColumnWish("ignored") for name in ("insured", "visit")},
                "every column is ignored",
            ),
        ],
        ids=["unseen level", "not integer", "no column", "nothing left"],
    )
    def test_a_wrong_wish_names_the_cell(self, tmp_path, wish, complaint):
        with pytest.raises(InputError, match=complaint):
            read_table(written(tmp_path), wishes=wish)

    def test_a_million_levels_are_no_category(self):
        cells = {"id": [f"p{i}" for i in range(1_000_000)]}
        with pytest.raises(InputError, match="has 1,000,000 levels") as error:
            table_of(cells, [0, 1] * 500_000)
        assert '[data.columns] id = "ignored"' in str(error.value)

    def test_a_constant_column_and_a_rare_level_are_named(self):
        table = table_of({"site": ["A"] * 4, "drug": ["x", "x", "y", "x"]}, [0, 1, 0, 1])
        constant, rare = notes_on(table.schema, 4)
        assert constant == "column 'site' has one value, A, in all 4 rows"
        assert rare == "column 'drug': a single row has the level y; an encoder stores it"

    def test_parquet_without_a_reader(self, tmp_path, monkeypatch):
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        path = written(tmp_path, "PAR1", "t.parquet")
        with pytest.raises(InputError, match="needs pyarrow or polars"):
            read_table(path)

    def test_parquet(self, tmp_path):
        pytest.importorskip("pyarrow")
        path = tmp_path / "t.parquet"
        pd.DataFrame({"a": [1, 2, 3], "s": ["x", None, "y"], "y": [0, 1, 0]}).to_parquet(path)
        table = read_table(path)
        assert table.schema.row(table.records.x[1]) == (2, None)


class TestCommand:
    def test_shows_the_columns(self, tmp_path):
        shown = invoke("data", written(tmp_path))
        assert shown.code == 0
        assert "integer" in shown.out
        assert "current, former, never" in shown.out
        assert "5 rows; label: outcome, 2 classes: no, yes." in shown.out
        assert "a single row has the level current, former" in shown.out

    def test_as_json(self, tmp_path):
        found = json.loads(invoke("data", written(tmp_path), "--label", "smoker", "--json").out)
        assert found["label"] == "smoker"
        assert [column["name"] for column in found["columns"]][-1] == "outcome"

    def test_a_label_needs_a_file(self):
        refused = invoke("data", "--label", "y")
        assert refused.code == 2
        assert "goes with a FILE" in refused.error
