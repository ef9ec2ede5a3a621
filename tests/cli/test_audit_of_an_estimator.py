"""``exhume audit model.skops --data patients.csv``: from a fitted pipeline to the verdict."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_diabetes
from sklearn.feature_selection import SelectKBest
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    KBinsDiscretizer,
    OneHotEncoder,
    StandardScaler,
)
from tests.cli.command import invoke

import exhume.sklearn
from exhume import InputError
from exhume.data.estimator_files import read_estimator

ROWS = 50


def patients() -> pd.DataFrame:
    rng = np.random.default_rng(2)
    return pd.DataFrame(
        {
            "bmi": rng.normal(26, 4, ROWS).round(2),
            "smoker": rng.choice(["never", "former", "current"], ROWS),
            "id": [f"p{i}" for i in range(ROWS)],
            "outcome": np.where(rng.random(ROWS) < 0.5, "yes", "no"),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A fitted pipeline in model.skops, and the table that it was fitted on."""
    folder, table = tmp_path_factory.mktemp("clinic"), patients()
    steps = make_column_transformer((StandardScaler(), ["bmi"]), (OneHotEncoder(), ["smoker"]))
    model = make_pipeline(steps, LogisticRegression(C=2.0, tol=1e-8))
    exhume.sklearn.save(model.fit(table[["bmi", "smoker"]], table.outcome), folder / "model.skops")
    table.loc[ROWS] = [30.0, "never", "p50", None]
    table.to_csv(folder / "patients.csv", index=False)
    return folder


def audit(folder: Path, *more: str, model: str = "model.skops"):
    table = ("--data", folder / "patients.csv", "--label", "outcome")
    return invoke("audit", folder / model, *table, "--quiet", "--workers", "1", *more)


def test_nothing_is_typed_twice(folder: Path, tmp_path: Path) -> None:
    done = audit(folder, "--targets", "2", "--out", str(tmp_path / "run"))
    assert done.code == 0, done.error
    assert "model: 51 rows: 48 known, 2 targets, 1 left out" in done.out
    summary = json.loads((tmp_path / "run" / "summary.json").read_text("utf-8"))
    (setting,) = summary["settings"]
    # The column that the model was not fitted on, and the label, are no part of a record.
    assert setting["columns"] == ["bmi", "smoker"]
    assert "A fit on these rows gives the numbers in model.skops." in setting["threat"]
    assert summary["brackets"][0]["reached"]["successes"] == 2


def test_a_file_of_other_rows_is_told_from_one_of_these(folder: Path, tmp_path: Path) -> None:
    table = patients()[:-3]
    model = read_estimator(folder / "model.skops").fit(table[["bmi", "smoker"]], table.outcome)
    exhume.sklearn.save(model, folder / "other.skops")
    asked = ("--targets", "2", "--out", str(tmp_path / "run"))
    assert audit(folder, *asked, model="other.skops").code == 0
    text = (tmp_path / "run" / "summary.json").read_text("utf-8")
    assert "A fit on these rows does not give the numbers in other.skops" in text


def test_all_settings_are_kept(tmp_path: Path) -> None:
    x, y = load_diabetes(return_X_y=True)
    search = GridSearchCV(make_pipeline(StandardScaler(), Ridge()), {"ridge__alpha": [0.5, 5.0]})
    exhume.sklearn.save(search.fit(x, y), tmp_path / "search.skops")
    again = read_estimator(tmp_path / "search.skops")
    assert again.best_params_ == search.best_params_
    assert again.predict(x[:3]) == pytest.approx(search.predict(x[:3]), rel=1e-12)
    assert (tmp_path / "search.skops").stat().st_mode & 0o077 == 0


class Stranger(Ridge):
    """A type that is not scikit-learn's."""


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("m.pkl", pickle.dumps(1), 'save(pickle.load(open("m.pkl", "rb")), "m.skops")'),
        ("m.joblib", b"anything", 'save(joblib.load("m.joblib"), "m.skops")'),
        ("m.skops", b"PK", "cannot be read as a skops file"),
        ("m.skops", Stranger(), "Stranger, which is neither scikit-learn's nor NumPy's"),
        ("m.skops", {"a": 1}, "holds a dict, not a scikit-learn estimator"),
        ("m.skops", Ridge(), "the Ridge in it is not fitted"),
        (
            "m.skops",
            LogisticRegression().fit(np.eye(4), list("abab")),
            "was fitted on 4 columns, the table has 3 beside the label",
        ),
    ],
    ids=["pickle", "joblib", "damaged", "stranger", "no estimator", "unfitted", "other columns"],
)
def test_what_cannot_be_audited_is_said(folder, name, content, complaint) -> None:
    import skops.io

    raw = content if isinstance(content, bytes) else skops.io.dumps(content)
    (folder / name).write_bytes(raw)
    found = audit(folder, model=name)
    assert found.code == 2
    assert complaint in found.err
    assert "Traceback" not in found.err


def test_what_is_missing_is_said(folder: Path) -> None:
    assert "--data patients.csv --label COLUMN" in invoke("audit", folder / "model.skops").error
    assert "--label goes with --data" in invoke("audit", "--label", "outcome").error
    alone = invoke("audit", folder / "patients.csv", "--data", folder / "patients.csv")
    assert "--data goes with the .skops file" in alone.error
    (folder / "less.csv").write_text("bmi,outcome\n1,yes\n2,no\n", encoding="utf-8")
    found = invoke("audit", folder / "model.skops", "--data", folder / "less.csv")
    assert "has no column 'smoker', on which the estimator was fitted" in found.error


def test_only_known_endings_are_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"saved as \.skops"):
        exhume.sklearn.save(Ridge().fit(np.eye(3), np.arange(3)), tmp_path / "model.bin")
    with pytest.raises(InputError, match="the Ridge is not fitted"):
        exhume.sklearn.save(Ridge(), tmp_path / "model.skops")


@pytest.mark.parametrize(
    "step",
    [
        SimpleImputer(),
        SelectKBest(k=1),
        MLPClassifier((3,), max_iter=2),
        GaussianProcessClassifier(ConstantKernel() * RBF()),
        KBinsDiscretizer(3, encode="ordinal"),
    ],
    ids=lambda one: type(one).__name__,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learns_own_parts_are_read(tmp_path: Path, step) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 2)), np.arange(40) % 2
    exhume.sklearn.save(step.fit(x, y), tmp_path / "model.skops")
    assert type(read_estimator(tmp_path / "model.skops")) is type(step)
