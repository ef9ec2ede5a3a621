"""The estimators and pipelines of the survey, each with a table that it can be fitted to."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from exhume.protocol.arrays import FloatArray
from exhume.protocol.errors import InputError
from exhume.protocol.records import Records
from exhume.protocol.schema import Schema
from exhume.training.estimator import Estimator
from exhume.training.frames import Frames
from exhume.training.unwrapped import unwrapped

KNOWN = 150


@dataclass(frozen=True, eq=False)
class SurveyTable:
    """Records to audit, with their schema if columns have names."""

    name: str
    records: Records
    schema: Schema | None = None


@dataclass(frozen=True, eq=False)
class SurveyCase:
    """An unfitted estimator, and the tables to try in turn: it is fitted to the first it takes."""

    name: str
    kind: str
    template: Any
    tables: tuple[Callable[[], SurveyTable], ...]

    def dealt(self, targets: int) -> tuple[Estimator, Records, Records]:
        """Return the mechanism, the known records and the targets; InputError if refused."""
        refusal = InputError("no table")
        for make in self.tables:
            table = make()
            frames = None if table.schema is None else Frames(table.schema, "pandas")
            known = table.records.take(slice(0, KNOWN))
            own = table.records.take(slice(KNOWN, KNOWN + targets))
            estimator = Estimator(self.template, frames)
            try:
                rows = estimator.rows(known.x)
                estimator = Estimator(unwrapped(self.template, rows, known.labels), frames)
                estimator.fitted(known)
            except InputError as error:
                refusal = refusal if str(refusal) != "no table" else error
                continue
            return estimator, known, own
        raise refusal

    def unit(self, known: Records) -> FloatArray:
        """Return the unit of each entry of a record."""
        mixed = self.tables[0]().schema
        if mixed is not None:
            return mixed.scale(known.x)
        deviations = known.x.std(axis=0)
        return np.asarray(np.where(deviations > 0, deviations, 1.0))


def estimator_cases() -> Iterator[SurveyCase]:
    """Yield every default-constructible classifier and regressor of ``all_estimators``."""
    from sklearn.utils import all_estimators

    for kind, tables in (
        ("classifier", (classes, class_counts)),
        ("regressor", (numbers, one_column)),
    ):
        for name, cls in all_estimators(type_filter=kind):
            try:
                estimator = cls()
            except TypeError:
                continue
            if "random_state" in estimator.get_params():
                estimator.set_params(random_state=0)
            yield SurveyCase(name, kind, estimator, tables)


def pipeline_cases() -> Iterator[SurveyCase]:
    """Yield twelve pipelines as people build them."""
    from sklearn.compose import TransformedTargetRegressor, make_column_transformer
    from sklearn.decomposition import PCA
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.feature_selection import SelectKBest
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import BayesianRidge, ElasticNet, LogisticRegression, Ridge
    from sklearn.model_selection import GridSearchCV
    from sklearn.naive_bayes import GaussianNB
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import (
        MaxAbsScaler,
        MinMaxScaler,
        OneHotEncoder,
        OrdinalEncoder,
        PolynomialFeatures,
        RobustScaler,
        StandardScaler,
    )
    from sklearn.svm import SVC, LinearSVC

    numeric, levels = ["age", "bmi", "bp", "s5"], ["sex", "glucose"]
    imputed = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())

    def mixed_steps(encoder: Any) -> Any:
        return make_column_transformer((imputed, numeric), (encoder, levels))

    of_mixed = {
        "imputer, scaler, one-hot (drop first) → logistic regression": make_pipeline(
            mixed_steps(OneHotEncoder(drop="first")), LogisticRegression()
        ),
        "imputer, scaler, ordinal → naive Bayes": make_pipeline(
            mixed_steps(OrdinalEncoder()), GaussianNB()
        ),
        "imputer, scaler, one-hot → random forest": make_pipeline(
            mixed_steps(OneHotEncoder()), RandomForestClassifier(random_state=0)
        ),
        "nested: imputer, scaler, one-hot → PCA → logistic regression, balanced": make_pipeline(
            make_pipeline(mixed_steps(OneHotEncoder(handle_unknown="ignore")), PCA(4)),
            LogisticRegression(class_weight="balanced"),
        ),
    }
    of_classes = {
        "StandardScaler → logistic regression": make_pipeline(
            StandardScaler(), LogisticRegression()
        ),
        "MaxAbsScaler → LinearSVC": make_pipeline(MaxAbsScaler(), LinearSVC(random_state=0)),
        "SelectKBest → discriminant analysis": make_pipeline(
            SelectKBest(k=8), LinearDiscriminantAnalysis()
        ),
        "GridSearchCV of StandardScaler → SVC": GridSearchCV(
            make_pipeline(StandardScaler(), SVC()), {"svc__C": [0.1, 1.0]}
        ),
    }
    of_numbers = {
        "MinMaxScaler → Ridge": make_pipeline(MinMaxScaler(), Ridge()),
        "RobustScaler → ElasticNet": make_pipeline(RobustScaler(), ElasticNet(alpha=0.1)),
        "PolynomialFeatures → Ridge": make_pipeline(
            StandardScaler(), PolynomialFeatures(2), Ridge()
        ),
        "TransformedTargetRegressor of BayesianRidge": TransformedTargetRegressor(
            make_pipeline(StandardScaler(), BayesianRidge()), transformer=StandardScaler()
        ),
    }
    for table, cases in ((mixed, of_mixed), (classes, of_classes), (numbers, of_numbers)):
        for name, template in cases.items():
            yield SurveyCase(name, "pipeline", template, (table,))


def _shuffled(x: FloatArray, y: Any) -> Records:
    order = np.random.default_rng(0).permutation(len(x))
    return Records(x[order], np.asarray(y)[order])


def _standard(loaded: Any) -> Records:
    """Return records in the standard units of those that are known."""
    records = _shuffled(loaded.data, loaded.target)
    first = records.x[:KNOWN]
    return Records((records.x - first.mean(axis=0)) / first.std(axis=0), records.y)


@lru_cache
def classes() -> SurveyTable:
    """The wines: 13 numbers, 3 classes."""
    from sklearn.datasets import load_wine

    return SurveyTable("wine", _standard(load_wine()))


@lru_cache
def class_counts() -> SurveyTable:
    """The wines in five steps per column, from 0: for estimators of counts and categories."""
    x = classes().records.x
    steps = np.digitize(x, (-1.5, -0.5, 0.5, 1.5)).astype(np.float64)
    # Every step occurs among the first records, so that all fits know the same categories.
    steps[:5] = np.arange(5.0)[:, None]
    return SurveyTable("wine in steps", Records(steps, classes().records.y))


@lru_cache
def numbers() -> SurveyTable:
    """The diabetes table: 10 numbers and a response."""
    from sklearn.datasets import load_diabetes

    return SurveyTable("diabetes", _standard(load_diabetes(scaled=False)))


@lru_cache
def one_column() -> SurveyTable:
    """The body mass index of the diabetes table and its response."""
    records = numbers().records
    return SurveyTable("diabetes, one column", Records(records.x[:, 2:3], records.y))


@lru_cache
def mixed() -> SurveyTable:
    """The diabetes table as a clinic would have it: levels, whole numbers, missing cells."""
    from sklearn.datasets import load_diabetes

    from exhume.data.frames import table_of

    loaded = load_diabetes(scaled=False)
    records = _shuffled(loaded.data, loaded.target)
    columns = dict(zip(loaded.feature_names, records.x.T, strict=True))
    sugar = np.digitize(columns["s6"], (83.0, 98.0))
    cells: dict[str, list[Any]] = {
        "age": [int(age) for age in columns["age"]],
        "sex": ["f" if sex == 1 else "m" for sex in columns["sex"]],
        "bmi": [None if i % 29 == 7 else float(v) for i, v in enumerate(columns["bmi"])],
        "bp": [float(v) for v in columns["bp"]],
        "s5": [round(float(v), 2) for v in columns["s5"]],
        "glucose": [("low", "normal", "high")[step] for step in sugar],
    }
    answers = ["yes" if y > 140 else "no" for y in records.labels]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = table_of(cells, answers, label="progressed", library="pandas")
    return SurveyTable("diabetes as a clinic has it", table.records, table.schema)
