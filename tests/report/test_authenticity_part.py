"""Is it real? What a report says of candidates, and what it keeps to itself when redacted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.report.pages import Page, read
from tests.report.runs import Made, write

from exhume.audit.stages.judge_verdicts import untold
from exhume.cli.audit import show
from exhume.report import render
from exhume.runlog.authenticity import Authenticity, Beside, JudgedCandidate, RocCurve
from exhume.runlog.store import Store
from exhume.runlog.summary import summarise

ONE = Made("alone")
ARTEFACT = "000-real-00-release-00000"
SAID = "of 12 candidates, 3 are judged real and 4 invented; 5 are undecided"
VERDICTS = ("real",) * 3 + ("invented",) * 4 + ("undecided",) * 5


def curve(area: float, low: float) -> RocCurve:
    rates = (0.0, 0.05, 0.5, 1.0), (0.4, 0.8, 0.95, 1.0)
    return RocCurve(area, low, 0.99, 6, 7, 30, 3, 0.01, 0.08, *rates, said="")


def candidate(place: int, *, known: bool = True) -> JudgedCandidate:
    beside = Beside(place % 4, 1.5, 0.93, 0.7) if known else None
    return JudgedCandidate(
        *(0, place, VERDICTS[place], 1.0 - place / 12, (0.02, 0.0, 0.09), 0.5, 0.75),
        # The second candidate was called real, and is not.
        real=place in (0, 2) if known else None,
        rank=1 if known else None,
        training=beside,
        held_out=beside,
    )


def facts(*, known: bool = True, tells: bool = True) -> Authenticity:
    return Authenticity(
        said=SAID if tells else "undecided: AUC 0.55 [0.31, 0.77], whose interval holds chance",
        tells=tells,
        attack="row-space",
        networks=8,
        judge="at-ends +1.5",
        counts={"real": 3, "invented": 4, "undecided": 5},
        right={"real": 2, "invented": 4} if known else None,
        claimed=curve(0.9, 0.7),
        measured=curve(0.8, 0.4) if known else None,
        held_out=curve(0.6, 0.3) if known else None,
        without=curve(0.7, 0.6) if known else None,
        objective=((0.0031, 0.0042 if known else None),),
        candidates=tuple(candidate(place, known=known) for place in range(12)),
        artefacts=(ARTEFACT,),
    )


def folder(path: Path, found: Authenticity, *, known: bool = True, shape=(8, 8)) -> Path:
    made = Made("alone", shape=shape)
    write(path, made)
    rng = np.random.default_rng(0)
    arrays = {"samples": rng.random((12, *shape), dtype=np.float32)}
    if known:
        for side in ("training", "held_out"):
            arrays[f"{side}.records"] = rng.random((4, *shape), dtype=np.float32)
    with Store.create(path) as store:
        store.add_authenticity("alone", found)
        store.save_arrays(ARTEFACT, arrays)
    return path


def alts(page: Page, start: str) -> list[str]:
    return [image["alt"] for image in page.all("img") if image["alt"].startswith(start)]


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Page:
    return read(render(folder(tmp_path_factory.mktemp("authenticity") / "run", facts())))


def test_the_answer_is_one_plain_sentence(page):
    assert f"{SAID[:1].upper()}{SAID[1:]}." in page.text
    assert "Is it real?" in page.text


def test_candidates_stand_beside_what_they_are_nearest_to(page):
    assert len(alts(page, "candidate no.")) == 8
    assert len(alts(page, "training record nearest to candidate")) == 8
    assert len(alts(page, "held-out record nearest to candidate")) == 8
    # Some of each verdict, the highest scores first; where one has too few, others fill up.
    named = [alt.removeprefix("candidate no. ") for alt in alts(page, "candidate no.")]
    assert named == ["0", "1", "2", "3", "4", "5", "7", "8"]
    assert "All 12 candidates" in page.text
    assert "2 % [0–9 %]" in page.text


def test_the_roc_is_drawn_with_areas_and_intervals(page):
    (alt,) = alts(page, "ROC of the judge")
    assert "own networks: area 0.90 [0.70, 0.99]" in alt
    assert "by the truth: area 0.80 [0.40, 0.99]" in alt


def test_it_says_by_what_right(page):
    for sentence in (
        "The judge learned from 8 networks that the adversary trained on its own records",
        "Of 7 pictures rebuilt there, 6 would be recognised, at a false-positive rate of 1 % "
        "(at most 8 %)",
        "The candidates do not show whether a given picture was trained on: area 0.60 "
        "[0.30, 0.99] against held-out pictures and 0.70 [0.60, 0.99] against "
        "networks trained without it.",
        "0.0031 at the candidates, 0.0042 at the training records. "
        "A small residual proves nothing.",
    ):
        assert sentence in page.text


def test_redacted_it_keeps_words_and_no_picture(tmp_path):
    page = read(render(folder(tmp_path / "run", facts()), redact=True))
    assert "data:image/png" not in page.source
    assert f"{SAID[:1].upper()}{SAID[1:]}." in page.text
    assert "All 12 candidates" in page.text


def test_without_the_truth_there_are_verdicts_all_the_same(tmp_path):
    page = read(render(folder(tmp_path / "run", facts(known=False), known=False)))
    assert len(alts(page, "candidate no.")) == 8
    assert not alts(page, "training record nearest")
    assert "in truth" not in page.text.lower()
    assert "Objective" not in page.text


def test_an_undecided_judge_says_so(tmp_path):
    page = read(render(folder(tmp_path / "run", facts(tells=False))))
    assert "Undecided: AUC 0.55 [0.31, 0.77], whose interval holds chance." in page.text
    none = read(render(folder(tmp_path / "none", untold("no attack really ran"))))
    assert "Undecided: no attack really ran." in none.text
    assert not alts(none, "ROC of the judge")


@pytest.mark.parametrize("shape", [(8, 8), (7,)])
def test_removed_artefacts_and_tables_leave_the_verdicts(tmp_path, shape):
    path = folder(tmp_path / "run", facts(), shape=shape)
    for artefact in (path / "artefacts").iterdir():
        artefact.unlink()
    page = read(render(path))
    assert not alts(page, "candidate no.")
    assert page.text.count("undecided") >= 5


def test_a_setting_that_was_not_judged_says_nothing(tmp_path):
    assert "Is it real?" not in read(render(write(tmp_path / "run", ONE))).text


def test_the_command_says_it_in_a_line(tmp_path, capsys):
    with Store.open(folder(tmp_path / "run", facts())) as store:
        found: Any = summarise(store.run())
    show(found)
    told = "alone: 12 candidates: 3 real (2 correct), 4 invented (4 correct)"
    assert told in capsys.readouterr().out.splitlines()


def test_the_line_needs_no_truth_and_may_be_undecided():
    assert facts(known=False).brief() == "12 candidates: 3 real, 4 invented"
    assert facts(tells=False).brief() == "whether its candidates are real is undecided"
