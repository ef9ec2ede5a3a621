"""Records of mixed columns out of fitted pipelines, in the user's own columns."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from exhume.attacks import Refit, StoredRecords, TreeCells
from exhume.data.frames import cells_of_frame, table_of
from exhume.protocol.knowledge import Knowledge, KnownAttributes
from exhume.protocol.reconstruction import Status
from exhume.training.estimator import Estimator
from exhume.training.frames import Frames

TARGETS = 2


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(3)
    n = 60
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 90, n),
            "bmi": np.round(rng.normal(26, 4, n), 1),
            "smoker": rng.choice(["never", "former", "current"], n),
            "sex": rng.choice(["f", "m"], n),
        }
    )
    frame.loc[[0, 20, 40], "bmi"] = np.nan
    risk = frame.age / 30 + (frame.smoker == "current") + rng.normal(size=n)
    cells, library = cells_of_frame(frame)
    return table_of(cells, np.where(risk > 2, "yes", "no").tolist(), library=library)


def pipeline(final, *, drop=None, ordinal=False):
    encoder = OrdinalEncoder() if ordinal else OneHotEncoder(drop=drop)
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    return make_pipeline(
        make_column_transformer((numbers, ["age", "bmi"]), (encoder, ["smoker", "sex"])), final
    )


def attacked(attack, template, table, *, first=0, known=()):
    records, schema = table.records, table.schema
    targets = records.take(slice(first, first + TARGETS))
    others = records.take([i for i in range(len(records)) if not first <= i < first + TARGETS])
    estimator = Estimator(template, Frames(schema, table.library))
    rngs = [np.random.default_rng(i) for i in range(TARGETS)]
    releases = estimator.publish_each(others, targets, rngs=rngs)
    mask = np.isin(np.arange(schema.width), schema.entries_of(known))
    told = [
        Knowledge(
            record_shape=records.record_shape,
            training=estimator,
            fixed_set=others,
            schema=schema,
            known_attributes=KnownAttributes(mask, x) if known else None,
        )
        for x in targets.x
    ]
    return attack.reconstruct_each(releases, told, rngs=rngs), targets


def same(schema, found, true):
    pairs = zip(schema.row(found), schema.row(true), strict=True)
    return all(a == (pytest.approx(b, rel=1e-4) if isinstance(b, float) else b) for a, b in pairs)


@pytest.mark.parametrize("drop", [None, "first"], ids=["all levels", "drop first"])
def test_refit_rebuilds_rows_with_levels_and_missing_cells(table, drop):
    # The first target's bmi is missing: it shows as the imputer's own mean.
    answers, truth = attacked(Refit(shadows=10), pipeline(GaussianNB(), drop=drop), table)
    for answer, x, label in zip(answers, truth.x, truth.labels, strict=True):
        assert same(table.schema, answer.samples[0], x), answer
        assert answer.labels[0] == label


def test_what_is_known_of_a_record_stays(table):
    known = ("age", "sex")
    answers, truth = attacked(
        Refit(shadows=10), pipeline(GaussianNB()), table, first=4, known=known
    )
    for answer, x in zip(answers, truth.x, strict=True):
        assert same(table.schema, answer.samples[0], x)


def test_levels_that_are_encoded_alike_come_out_as_a_set(table):
    # Of an encoder that forgets levels, several records explain what is stored.
    encoder = OneHotEncoder(categories=[["never"], ["f", "m"]], handle_unknown="ignore")
    steps = make_column_transformer((StandardScaler(), ["age"]), (encoder, ["smoker", "sex"]))
    template = make_pipeline(steps, KNeighborsClassifier())
    smokers = table.schema.decode(table.records.x)["smoker"]
    first = next(i for i in range(len(smokers) - 1) if "never" not in (smokers[i], smokers[i + 1]))
    answers, truth = attacked(StoredRecords(), template, table, first=first)
    for answer, x in zip(answers, truth.x, strict=True):
        levels = {table.schema.row(one)[2] for one in answer.samples}
        assert {"former", "current"} <= levels
        assert "are stored like this" in answer.message
        assert table.schema.row(x)[0] == table.schema.row(answer.samples[0])[0]


def test_stored_records_come_back_in_the_users_columns(table):
    template = pipeline(KNeighborsClassifier(), ordinal=True)
    answers, truth = attacked(StoredRecords(), template, table)
    for answer, x in zip(answers, truth.x, strict=True):
        assert same(table.schema, answer.samples[0], x)


@pytest.mark.parametrize(
    "final", [GaussianNB(), DecisionTreeClassifier(random_state=0)], ids=["smooth", "trees"]
)
def test_a_level_of_its_own_names_the_record(table, final):
    # Nobody else smokes cigars: the encoder's list of levels is one longer.
    frame = pd.DataFrame(table.schema.decode(table.records.x))
    frame.loc[1, "smoker"] = "cigars"
    cells, library = cells_of_frame(frame)
    rare = table_of(cells, table.records.labels.tolist(), library=library)
    answers, truth = attacked(Refit(shadows=10), pipeline(final), rare, first=1)
    assert "lists what no known record has: smoker cigars" in answers[0].message
    assert any(same(rare.schema, one, truth.x[0]) for one in answers[0].samples)
    assert "lists what no known" not in answers[1].message


def test_trees_behind_an_encoder(table):
    template = pipeline(DecisionTreeClassifier(random_state=0))
    answers, truth = attacked(TreeCells(), template, table, first=6)
    for answer, x in zip(answers, truth.x, strict=True):
        assert answer.status is Status.APPROXIMATE
        found, true = table.schema.row(answer.samples[0]), table.schema.row(x)
        assert answer.stats["columns found"] >= 1
        assert found[2] in ("never", "former", "current")
        assert len(found) == len(true)
