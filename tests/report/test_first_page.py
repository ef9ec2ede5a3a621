"""The page that is filed: what was audited, with what, and what was not tested."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from tests.report.pages import read
from tests.report.runs import BLIND, REFUSED, Attempt, Made, write

from exhume.report import render
from exhume.runlog.store import Store

DIGEST = "3f" * 32


def filed(folder: Path, *made: Made, **notes: object) -> Path:
    """A run folder with what an audit notes of itself."""
    write(folder, *made)
    with Store.create(folder) as store:
        config = json.loads(store.meta("config") or "{}")
        config["audit"] |= {"title": "Model 7, <b>before</b> release", "author": "The data office"}
        store.set_meta("config", json.dumps(config))
        store.set_meta("started", "2026-03-01T09:30+00:00")
        store.set_meta("files", json.dumps({"model.safetensors": DIGEST}))
    return folder


def test_it_says_what_was_audited_by_whom_and_when(tmp_path: Path) -> None:
    text = read(render(filed(tmp_path / "run", Made("one")))).text
    head = text[: text.index("attacks reached")]
    for said in (
        "Model 7, <b>before</b> release",
        "Author: The data office",
        "Date: 2026-03-01 09:30 UTC",
        "Made with: Exhume 0.1.0",
    ):
        assert said in head
    assert f"model.safetensors SHA-256 {DIGEST}" in text


def test_the_banner_says_who_may_see_it(tmp_path: Path) -> None:
    folder = filed(tmp_path / "run", Made("one"))
    for redact, words in ((False, "Confidential: shows private records"), (True, "Redacted: no")):
        page = read(render(folder, redact=redact))
        assert page.text.index(words) < page.text.index("Model 7, <b>before</b> release", 100)
        assert f'@top-center {{ content: "{words}' in page.insides["style"]


def test_a_run_without_a_title_is_called_by_its_setting(tmp_path: Path) -> None:
    page = read(render(write(tmp_path / "run", Made("audit", title="The clinic's model"))))
    assert page.text.startswith("The clinic's model: ")


def test_it_counts_the_attacks_that_ran_and_names_those_that_did_not(tmp_path: Path) -> None:
    crashed = Attempt("odd", (None,), ("CRASHED",), "ValueError: 0.123987 is odd", None)
    made = Made("one", (Attempt("glm"), REFUSED, crashed, BLIND))
    page = read(render(write(tmp_path / "run", made), redact=True))
    assert "one 1 of 3 100 % [69–100 %] 0 % none 10 pictures" in page.text
    untested = page.text[page.text.index("What was not tested") :]
    assert "scaler: the release holds no scaler." in untested
    assert "odd: it stopped with an error." in untested
    assert "0.123987" not in page.source


def test_values_come_out_under_their_names(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", Made("table", shape=(3,)))
    with Store.create(folder) as store:
        (found,) = store.settings()
        data = replace(found.data, columns=("age", "income", "district"))
        store.add_setting(replace(found, data=data))
    assert "10 records: age, income, district" in read(render(folder)).text


def test_where_no_attack_ran_nothing_is_known(tmp_path: Path) -> None:
    silent = Attempt("glm", (0.3,), ("NOT_CONVERGED",), "no convergence")
    made = (Made("one"), Made("two", (silent, BLIND)))
    text = read(render(write(tmp_path / "run", *made))).text
    assert "two 0 of 1 not known 0 % none not known" in text
    assert "two: 10 targets on which no attack ran." in text


def test_an_audit_without_a_title_is_called_by_its_model_and_data(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", Made("audit", title="audit"))
    with Store.create(folder) as store:
        config = json.loads(store.meta("config") or "{}")
        config["setting"][0] |= {"release": {"model": "ridge"}, "data": {"file": "a/patients.csv"}}
        store.set_meta("config", json.dumps(config))
    assert read(render(folder)).text.startswith("ridge, patients.csv: ")
