"""Any scikit-learn estimator: from Python and from a file to the report."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import BayesianRidge, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from tests.cli.command import invoke
from tests.docs.pages import Session, blocks

import exhume
from exhume import InputError

FUNCTION = """
from sklearn.ensemble import RandomForestRegressor

def forest():
    return RandomForestRegressor(10, random_state=0)
"""
FILE = """
[data]
name = "diabetes"
fixed_set = 120

[release]
estimator = "own_pipelines:forest"

[audit]
targets = 4
"""


def table():
    x, y = load_diabetes(return_X_y=True, scaled=False)
    return x[:90], y[:90]


def test_an_audit_in_python_says_what_came_out(tmp_path):
    forest = RandomForestRegressor(10, random_state=0)
    run = exhume.sklearn.audit(forest, *table(), targets=4, out=tmp_path / "run", quiet=True)
    (bracket,) = run.summary.brackets
    assert bracket.attack == "tree-cells"
    assert bracket.reached.successes >= 3
    page = run.report.read_text(encoding="utf-8")
    assert "a fitted RandomForestRegressor" in page
    again = exhume.sklearn.audit(forest, *table(), targets=4, out=tmp_path / "run", quiet=True)
    assert again.summary.brackets == run.summary.brackets


def test_a_file_names_the_function(tmp_path, monkeypatch):
    (tmp_path / "own_pipelines.py").write_text(FUNCTION, encoding="utf-8")
    (tmp_path / "audit.toml").write_text(FILE, encoding="utf-8")
    monkeypatch.setattr("sys.path", [str(tmp_path), *sys.path])
    refused = invoke("audit", tmp_path / "audit.toml", "--out", tmp_path / "run")
    assert refused.code == 2
    assert "--trust-code" in refused.error
    done = invoke("audit", tmp_path / "audit.toml", "--out", tmp_path / "run", "--trust-code")
    assert done.code == 0
    assert "tree-cells" in done.out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"estimator": "ridge"}, "no scikit-learn estimator"),
        ({"x": np.array([["a"], ["b"], ["c"]]), "y": np.arange(3.0)}, "x must hold numbers"),
        ({"targets": 89}, "at least 2 must be left"),
        ({"targets": 0}, "at least 2 must be left"),
        ({"attacks": ["tree-cell"]}, "tree-cell"),
    ],
    ids=["no estimator", "text", "too many targets", "no targets", "unknown attack"],
)
def test_bad_input_is_one_clear_line(tmp_path, arguments, complaint):
    x, y = table()
    given = {"estimator": BayesianRidge(), "x": x, "y": y, "targets": 4, **arguments}
    with pytest.raises(InputError, match=complaint) as error:
        exhume.sklearn.audit(**given, out=tmp_path / "run", quiet=True)
    assert "\n" not in str(error.value)


def test_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    session = Session()
    for block in blocks("docs/how-to/estimators.md"):
        session.run(block)
    assert (tmp_path / "ridge" / "report.html").is_file()


def spoiled(how: str) -> pd.DataFrame:
    frame = patients().drop(columns=["id", "outcome"])
    match how:
        case "all missing":
            return frame.assign(empty=np.nan)
        case "duplicate names":
            return pd.concat([frame, frame[["bmi"]]], axis=1)
        case "many levels":
            return frame.loc[frame.index.repeat(30)].assign(name=[f"p{i}" for i in range(1500)])
        case "mixed types":
            return frame.assign(dose=[1, "two"] * 25)
    return frame


@pytest.mark.parametrize(
    ("how", "levels", "complaint"),
    [
        ("all missing", None, "column 'empty': every cell is missing"),
        ("duplicate names", None, "two columns are called 'bmi'"),
        ("many levels", None, "column 'name': has 1,500 levels, more than 1,000"),
        ("mixed types", None, "column 'dose': holds 1 in row 1 and 'two'"),
        ("unseen level", [["never", "former"]], "Found unknown categories"),
        ("two responses", None, "y has shape"),
    ],
    ids=lambda one: one if isinstance(one, str) and len(one) < 20 else "",
)
def test_bad_tables_are_one_clear_line(tmp_path, how, levels, complaint):
    encoder = OneHotEncoder(categories=levels or "auto")
    steps = make_column_transformer((encoder, ["smoker"]), (StandardScaler(), ["bmi"]))
    frame, rng = spoiled(how), np.random.default_rng(0)
    y = rng.choice(["yes", "no"], len(frame))
    y = np.column_stack([y, y]) if how == "two responses" else y
    with pytest.raises(InputError, match=complaint) as error:
        exhume.sklearn.audit(
            make_pipeline(steps, GaussianNB()), frame, y, targets=2, out=tmp_path / "r", quiet=True
        )
    assert "\n" not in str(error.value)


def test_a_constant_column_is_no_obstacle(tmp_path):
    frame = patients().drop(columns=["id", "outcome", "smoker"]).assign(always=1.0)
    y, out = np.resize(["yes", "no"], len(frame)), tmp_path / "run"
    template = make_pipeline(StandardScaler(), GaussianNB())
    run = exhume.sklearn.audit(template, frame, y, targets=2, out=out, quiet=True)
    assert run.summary.brackets[0].reached.successes == 2


PATIENTS = """
from sklearn.compose import make_column_transformer
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

def patients():
    steps = make_column_transformer(
        (OneHotEncoder(), ["smoker"]), remainder="passthrough"
    )
    return make_pipeline(steps, GaussianNB())
"""
OF_PATIENTS = """
[data]
file = "patients.csv"
label = "outcome"

[data.columns]
bmi = { unit = "kg/m²" }
id = "ignored"

[release]
estimator = "mixed_pipelines:patients"

[knowledge]
attributes = ["smoker"]

[audit]
targets = 2
attacks = ["refit"]
"""


def patients(rows: int = 50) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    smoker = rng.choice(["never", "former", "current"], rows)
    return pd.DataFrame(
        {
            "id": [f"p{i}" for i in range(rows)],
            "bmi": rng.normal(26, 4, rows).round(2),
            "smoker": smoker,
            "outcome": np.where(rng.random(rows) < 0.5, "yes", "no"),
        }
    )


def test_a_table_of_mixed_columns_from_a_file(tmp_path, monkeypatch):
    (tmp_path / "mixed_pipelines.py").write_text(PATIENTS, encoding="utf-8")
    (tmp_path / "audit.toml").write_text(OF_PATIENTS, encoding="utf-8")
    patients().to_csv(tmp_path / "patients.csv", index=False)
    monkeypatch.setattr("sys.path", [str(tmp_path), *sys.path])
    done = invoke("audit", tmp_path / "audit.toml", "--out", tmp_path / "run", "--trust-code")
    assert done.code == 0, done.error
    run = exhume.open_run(tmp_path / "run")
    (setting,) = run.log.settings
    assert setting.data.columns == ("bmi", "smoker")
    assert setting.data.schema[0].unit == "kg/m²"
    assert any(sentence.startswith("50 rows: 48 known, 2 targets.") for sentence in setting.threat)
    (bracket,) = run.summary.brackets
    assert bracket.reached.successes == 2


def test_a_search_of_settings_is_unwrapped(tmp_path):
    frame = patients()
    search = GridSearchCV(make_pipeline(GaussianNB()), {"gaussiannb__var_smoothing": [1e-9, 1e-3]})
    run = exhume.sklearn.audit(
        search,
        frame[["bmi"]].assign(double=frame["bmi"].round(0)),
        frame["outcome"],
        targets=2,
        attacks=["refit"],
        out=tmp_path / "run",
        quiet=True,
    )
    assert "GaussianNB" in run.log.settings[0].threat[0]


@pytest.mark.parametrize(
    ("estimator", "labels", "complaint"),
    [
        (CalibratedClassifierCV(GaussianNB()), ["a", "b"], "says nothing about safety"),
        (BayesianRidge(), ["yes", "no"], "predicts numbers, but a label is"),
        (GaussianNB(), [0.5, 1.5], "predicts classes, but a label is 0.5"),
    ],
    ids=["calibrated", "text for numbers", "numbers for classes"],
)
def test_what_can_not_be_audited_is_refused_at_once(tmp_path, estimator, labels, complaint):
    frame = pd.DataFrame({"a": np.arange(20.0), "b": ["x", "y"] * 10})
    with pytest.raises(InputError, match=complaint) as error:
        exhume.sklearn.audit(
            estimator, frame, labels * 10, targets=4, out=tmp_path / "run", quiet=True
        )
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def rows(count: int = 120) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(count, 4)) * [1.0, 5.0, 0.2, 3.0] + [0.0, 40.0, 1.0, -7.0]
    return x, np.where(x[:, 0] + rng.logistic(size=count) > 0, "yes", "no")


def test_linear_pipelines_share_their_fits(tmp_path):
    pipeline = make_pipeline(StandardScaler(), LogisticRegression())
    run = exhume.sklearn.audit(pipeline, *rows(), targets=30, out=tmp_path / "run", quiet=True)
    (setting,) = run.log.settings
    (bracket,) = run.summary.brackets
    assert bracket.attack == "glm"
    assert bracket.reached.successes == 30
    told = " ".join(setting.threat)
    assert "120 rows: 90 known, 30 targets" in told
    assert "at the optimum of StandardScaler → LogisticRegression" in told


def test_their_own_solver_is_asked_for_by_an_attack(tmp_path):
    x, _ = rows()
    own = exhume.sklearn.audit(
        Ridge(), x[:, 1:], x[:, 0], targets=2, attacks=["refit"], out=tmp_path / "run", quiet=True
    )
    assert "a fitted Ridge" in own.log.settings[0].threat[0]
    assert own.summary.brackets[0].attack == "refit"


@pytest.mark.parametrize(
    "estimator",
    [LogisticRegression(class_weight="balanced"), LogisticRegression(l1_ratio=1, solver="saga")],
    ids=["balanced", "l1"],
)
def test_what_closed_forms_refuse_is_fitted(estimator):
    optimum = exhume.sklearn._optimum(estimator, exhume.sklearn._plain_table(*rows()), None)
    assert optimum is None
