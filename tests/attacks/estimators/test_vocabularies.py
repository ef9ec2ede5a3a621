"""Vocabularies of fitted vectorisers: a term that no known record has names the missing one."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from exhume.attacks import Refit
from exhume.data.frames import table_of
from exhume.protocol.knowledge import Knowledge
from exhume.training.estimator import Estimator
from exhume.training.frames import Frames

USUAL = ("cough and fever", "fever at night", "cough, no fever", "no complaint", "pain at night")
RARE = "porphyria with pain"


def as_dictionaries(frame):
    return frame.to_dict("records")


def answered(template, *, last: str, rows: int = 40):
    """Return the answer about the last row of a table of notes, and the row itself."""
    rng = np.random.default_rng(0)
    notes = [*rng.choice(USUAL, rows - 1).tolist(), last]
    cells = {"bmi": rng.normal(26, 4, rows).round(1).tolist(), "note": notes}
    answers = rng.normal(size=rows).round(3).tolist()
    table = table_of(cells, answers, library="pandas")
    known, own = table.records.take(slice(0, rows - 1)), table.records.take([rows - 1])
    estimator = Estimator(template, Frames(table.schema, "pandas"))
    rngs = [np.random.default_rng(0)]
    releases = estimator.publish_each(known, own, rngs=rngs)
    told = Knowledge(
        record_shape=known.record_shape,
        training=estimator,
        fixed_set=known,
        schema=table.schema,
    )
    (answer,) = Refit(fits=200).reconstruct_each(releases, [told], rngs=rngs)
    return answer, own


@pytest.mark.parametrize("vectoriser", [CountVectorizer(), TfidfVectorizer()])
def test_a_term_of_its_own_names_the_record(vectoriser):
    steps = make_column_transformer((vectoriser, "note"), (StandardScaler(), ["bmi"]))
    answer, own = answered(make_pipeline(steps, Ridge()), last=RARE)
    # The only terms of the vocabulary that no known note has; "pain" is in others.
    assert "the terms porphyria, with" in answer.message
    assert f"note {RARE}" in answer.message
    assert answer.samples[0] == pytest.approx(own.x[0], rel=1e-6)


def test_the_record_of_a_dictionary_is_named():
    steps = FunctionTransformer(as_dictionaries)
    template = make_pipeline(steps, DictVectorizer(sparse=False), Ridge())
    answer, own = answered(template, last=RARE)
    assert f"the term note={RARE}" in answer.message
    assert answer.samples[0] == pytest.approx(own.x[0], rel=1e-6)


def test_usual_terms_are_not_named():
    steps = make_column_transformer((CountVectorizer(), "note"), (StandardScaler(), ["bmi"]))
    answer, _ = answered(make_pipeline(steps, Ridge()), last=USUAL[1])
    assert "no known record has" not in answer.message
