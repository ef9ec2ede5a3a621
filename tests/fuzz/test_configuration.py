"""Audits' files of every kind of nonsense: a plan or one line, never a traceback."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fuzz.mutations import answers_or_refuses, damaged, fuzzed

from exhume.audit import make_plan
from exhume.config import Config, listed_defences, load
from exhume.config.explaining import AT_THE_TOP, _paths
from exhume.config.reading import from_tables
from exhume.protocol.limits import settings_of

EXAMPLE = files("exhume").joinpath("example.toml").read_text(encoding="utf-8")
KEYS = sorted(
    {key for path in _paths(Config) for key in path}
    | set(AT_THE_TOP)
    | {key for one in listed_defences() for key in settings_of(one)}
)
WORDS = sorted(
    {one.name for one in listed_defences()}
    | {"digits", "breast-cancer", "logistic", "ridge", "mlp", "resnet18", "a.b:c", "x.pt2", "sgd"}
    | {"weights", "outputs", "gradient", "update", "glm", "geiping", "upper-half", "he", "cpu"}
)

TOKENS = [*KEYS, *map(repr, WORDS), "[", "]", "="]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 70)
    | st.integers()
    | st.floats()
    | st.sampled_from(WORDS)
    | st.text(max_size=8)
    | st.datetimes(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)


def planned(path: Path) -> object:
    return make_plan(load(path))


@fuzzed
@given(data=st.data())
def test_damaged_text(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.toml"
    path.write_bytes(data.draw(damaged(EXAMPLE.encode())))
    answers_or_refuses(lambda: planned(path))


@fuzzed
@given(data=st.data())
def test_lines_and_words_mixed_up(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Mostly valid TOML: lines of the example in any order, with words of others in them."""
    lines = data.draw(st.lists(st.sampled_from(EXAMPLE.splitlines()), max_size=30))
    words = [line.split() for line in lines]
    for _ in range(data.draw(st.integers(0, 5))):
        row = data.draw(st.integers(0, max(len(words) - 1, 0)))
        if row < len(words) and words[row]:
            place = data.draw(st.integers(0, len(words[row]) - 1))
            words[row][place] = data.draw(st.sampled_from(TOKENS))
    path = tmp_path_factory.getbasetemp() / "mixed.toml"
    path.write_text("\n".join(map(" ".join, words)), encoding="utf-8")
    answers_or_refuses(lambda: planned(path))


@fuzzed
@given(tables=st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), VALUES, max_size=5))
def test_any_tables(tables: dict[str, Any]) -> None:
    answers_or_refuses(lambda: make_plan(from_tables(tables, source="fuzzed.toml")))


@fuzzed
@given(data=st.data())
def test_a_value_out_of_place(data: st.DataObject) -> None:
    """A whole audit in which one key, anywhere, has another value: as near to valid as it gets."""
    tables: dict[str, Any] = {
        "data": {"name": "digits", "fixed_set": 60},
        "release": {"model": "mlp", "hidden": [5], "defences": [{"name": "noise", "size": 0.1}]},
        "knowledge": {"training": {"learning_rate": 0.1, "epochs": 2, "clipping": {"norm": 1.0}}},
        "grid": {"few": [{"name": "rounding", "decimals": 3}]},
        "options": {"ridge": {"shadows": 100}},
        "audit": {"targets": 2, "metrics": ["rmse"]},
    }
    table = tables
    for _ in range(data.draw(st.integers(0, 3))):
        inner = [one for one in table.values() if isinstance(one, dict)]
        if inner:
            table = data.draw(st.sampled_from(inner))
    key = data.draw(st.sampled_from([*table, *KEYS]))
    table[key] = data.draw(VALUES)
    answers_or_refuses(lambda: make_plan(from_tables(tables, source="fuzzed.toml")))


@fuzzed
@given(defence=st.sampled_from(listed_defences()), data=st.data())
def test_a_defence_with_any_settings(defence: Any, data: st.DataObject) -> None:
    keys = data.draw(st.lists(st.sampled_from([*settings_of(defence), "inner"]), unique=True))
    table = {"name": defence.name, **{key: data.draw(VALUES) for key in keys}}
    tables = {
        "data": {"name": "digits", "shadow_targets": 9},
        "release": {"kind": "gradient", "model": "mlp", "batch_size": 1, "defences": [table]},
        "audit": {"targets": 1},
    }
    answers_or_refuses(lambda: make_plan(from_tables(tables, source="fuzzed.toml")).setting(0))
