"""The reference cannot drift: every key has a meaning and a valid example, every method facts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import ValidationError
from tools.site.api import pages as api_pages
from tools.site.doctests import fenced
from tools.site.keys import MEANINGS, Key, keys, said
from tools.site.methods import FACTS, Method, facts, methods
from tools.site.methods import pages as method_pages
from tools.site.words import in_words

NO_VALUE = {("options", "start"), ("options", "settings")}
"""What a file can't say as one value: a start is the table [start], settings are for Python."""
TABLES = {"data", "release", "knowledge", "utility", "start"}


def _id(key: Key) -> str:
    return f"{key.table}.{key.name}-{key.owner}"


@pytest.mark.parametrize("key", keys(), ids=_id)
def test_every_key_has_a_meaning_and_an_example_that_its_type_allows(key: Key) -> None:
    assert key.meaning.endswith((".", ")")), f"{key.meaning!r} in {MEANINGS.name}"
    if (key.table, key.name) in NO_VALUE or (key.table == "setting" and key.name in TABLES):
        assert key.example is None
    else:
        key.validate()


def test_every_meaning_has_its_key() -> None:
    known = {(key.table, key.name) for key in keys()}
    assert {(table, name) for table, names in said().items() for name in names} == known


@pytest.mark.parametrize(
    ("table", "name", "wrong"),
    [
        ("audit", "targets", 0),
        ("audit", "targets", "50"),
        ("release", "kind", "weight"),
        ("knowledge", "fixed_set", 3),
        ("setting", "grid", {"noise": [{"name": "noise", "sise": 0.01}]}),
    ],
)
def test_a_wrong_example_is_noticed(table: str, name: str, wrong: object) -> None:
    (key, *_) = [one for one in keys() if (one.table, one.name) == (table, name)]
    key.validate()
    with pytest.raises(ValidationError):
        replace(key, example_given=wrong).validate()


def test_a_key_without_a_meaning_is_noticed() -> None:
    with pytest.raises(LookupError, match=r"no meaning of \[audit\] target"):
        _ = Key("audit", "target", int, 1).meaning


def test_types_say_their_limits() -> None:
    shown = {f"{key.table}.{key.name}": in_words(key.type) for key in keys()}
    assert shown["audit.targets"] == "whole number, at least 1"
    assert shown["knowledge.training.momentum"] == "number, at least 0, below 1"
    assert shown["data.units"] == '`"raw"` or `"fixed-set"`'
    assert shown["defences.bits"] == "whole number, from 1 to 16"
    assert shown["defences.size"] == "number, above 0"


@pytest.mark.parametrize("method", methods(), ids=lambda one: f"{one.kind}-{one.name}")
def test_every_method_says_what_it_needs_tells_and_where_it_is_from(method: Method) -> None:
    assert set(method.facts) == {"needs", "tells", "source"}, f"{method.name} in {FACTS.name}"
    assert method.docstring


def test_every_fact_has_its_method() -> None:
    known = {(one.kind, one.name) for one in methods()}
    assert {(kind, name) for kind, names in facts().items() for name in names} == known


def test_every_method_has_a_page_with_its_options() -> None:
    pages = {page.path: page.text for page in method_pages()}
    assert len(pages) == len(methods()) + 4
    assert "| `total_variation` | number | `0.02` |" in pages["reference/attacks/geiping.md"]
    assert "Gradient of a network" in pages["reference/attacks/geiping.md"]
    assert '{ name = "rounding", decimals = 2 }' in pages["reference/defences/rounding.md"]


def test_the_api_documents_what_is_exported_once() -> None:
    text = "\n".join(page.text for page in api_pages())
    assert text.count("::: exhume.attacks.Geiping\n") == 1
    assert "::: exhume.sklearn.release\n" in text
    assert text.count("Knowledge\n") == 1


def test_doctests_are_code() -> None:
    text = "One.\n\n>>> 1 + 1\n2\n>>> 3\n3\n\nTwo."
    assert fenced(text) == "One.\n\n```pycon\n>>> 1 + 1\n2\n>>> 3\n3\n```\n\nTwo."
