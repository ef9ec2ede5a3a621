"""The figures: their numbers against slow references, their bytes against themselves."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy.stats import beta
from tests.report.runs import BLIND, Attempt, Made, write

from exhume.report.figures import CLOSEST, FARTHEST, success_curve
from exhume.report.setting_part import ReportedSetting, figures
from exhume.report.theme import Drawing
from exhume.report.verdict import finding_of, rows_of
from exhume.runlog.artefacts import first_candidates, read_truth, true_errors
from exhume.runlog.store import Store
from exhume.runlog.summary import summarise

ERRORS = (0.001, 0.01, 0.05, 0.19, 0.21, 0.3, 0.9)


def case(store: Store, closeness: float = 1.0) -> ReportedSetting:
    summary = summarise(store.run())
    (bracket,), rows = summary.brackets, rows_of(summary, summary.brackets[0].setting)
    setting = summary.settings[0]
    records = store.outcomes()
    return ReportedSetting(
        store, setting, bracket, rows, records, finding_of(bracket, rows), closeness
    )


def drawn(folder: Path, made: Made) -> tuple[Drawing, ...]:
    with Store.open(write(folder, made)) as store:
        return figures(case(store))


def svg(uri: str) -> str:
    return base64.b64decode(uri.removeprefix("data:image/svg+xml;base64,")).decode()


class TestCurve:
    @pytest.mark.parametrize("closeness", [1.0, 0.5, 3.0])
    def test_every_point_is_the_share_of_targets_at_least_that_close(
        self, tmp_path: Path, closeness: float
    ) -> None:
        made = Made("one", (Attempt("glm", (*ERRORS, None)), BLIND), count=16)
        with Store.open(write(tmp_path / "run", made, closeness=closeness)) as store:
            records = case(store).of("glm")
        curve = success_curve(records, asked=closeness, confidence=0.9)
        assert curve is not None
        assert curve.closeness[0] == pytest.approx(CLOSEST)
        assert curve.closeness[-1] == pytest.approx(FARTHEST)
        for at, rate, low, high in zip(*vars(curve).values(), strict=True):
            count = 2 * sum(error / 0.2 <= at for error in ERRORS)
            assert rate == count / 16
            assert low == pytest.approx(beta.ppf(0.05, count, 17 - count) if count else 0.0)
            assert high == pytest.approx(beta.ppf(0.95, count + 1, 16 - count))

    def test_at_the_closeness_asked_for_it_is_the_bracket(self, tmp_path: Path) -> None:
        # 0.06 / 0.2 is not 0.3 in floating point: the success on record must still stand.
        made = Made("one", (Attempt("glm", (0.06, 0.2 * 0.3, 0.3)), BLIND), count=9)
        with Store.open(write(tmp_path / "run", made, closeness=0.3)) as store:
            one = case(store, 0.3)
            curve = success_curve(one.of("glm"), asked=0.3, confidence=0.95)
        assert curve is not None
        assert one.bracket.reached is not None
        place = int(np.flatnonzero(curve.closeness == 0.3)[0])
        assert curve.rate[place] == one.bracket.reached.rate
        assert curve.low[place] == one.bracket.reached.low

    def test_trials_that_did_not_run_do_not_count(self, tmp_path: Path) -> None:
        statuses = ("CONVERGED", "NOT_CONVERGED")
        made = Made("one", (Attempt("glm", (0.01, 0.5), statuses), BLIND))
        with Store.open(write(tmp_path / "run", made)) as store:
            records = case(store).of("glm")
        curve = success_curve(records, asked=1.0, confidence=0.95)
        assert curve is not None
        assert curve.rate[-1] == 1.0
        assert success_curve(records[1::2], asked=1.0, confidence=0.95) is None


class TestEvidence:
    def test_true_errors_are_in_the_records_own_units(self, tmp_path: Path) -> None:
        made = Made("one", (Attempt("glm", (0.01, None, 0.3)), BLIND), shape=(5,), count=3)
        with Store.open(write(tmp_path / "run", made)) as store:
            one = case(store)
            truth = read_truth(store, one.setting)
            assert truth is not None
            found = true_errors(store, one.of("glm"), one.setting, truth)
        assert found[0] == pytest.approx(0.01)
        assert found[1] is None
        assert found[2] == pytest.approx(0.3)

    def test_damaged_or_missing_artefacts_are_nothing_worse_than_missing(
        self, tmp_path: Path
    ) -> None:
        folder = write(tmp_path / "run", Made("one"))
        for path in (folder / "artefacts").iterdir():
            path.write_bytes(b"garbage")
        with Store.open(folder) as store:
            one = case(store)
            assert read_truth(store, one.setting) is None
            assert first_candidates(store, one.of("glm"), one.setting) == [None] * 10


class TestDrawing:
    def test_the_same_records_give_the_same_bytes(self, tmp_path: Path) -> None:
        made = Made("one", (Attempt("glm", ERRORS), BLIND), bounded=True)
        one, two = (drawn(tmp_path / name, made) for name in ("a", "b"))
        assert len(one) == 3
        assert one == two

    def test_dark_differs_from_light_in_colours_alone(self, tmp_path: Path) -> None:
        colour = re.compile("#[0-9a-f]{6}")
        for figure in drawn(tmp_path / "a", Made("one", bounded=True)):
            light, dark = svg(figure.light), svg(figure.dark)
            assert light != dark
            assert colour.sub("", light) == colour.sub("", dark)
            shared = set(colour.findall(light)) & set(colour.findall(dark))
            assert not shared, f"{shared} has no dark counterpart"

    def test_a_figure_is_small_well_formed_and_alone(self, tmp_path: Path) -> None:
        many = tuple(0.001 * (i + 1) for i in range(800))
        made = Made("one", (Attempt("glm", many), BLIND), bounded=True, count=800)
        for figure in drawn(tmp_path / "a", made):
            text = svg(figure.light)
            ElementTree.fromstring(text)
            assert "href" not in re.sub(r'xlink:href="#', "", text).replace("xmlns:xlink", "")
            assert "<image" not in text
            assert len(text) < 60_000
            assert figure.alt
            assert figure.caption

    def test_a_usual_figure_is_about_16_kb(self, tmp_path: Path) -> None:
        made = Made("one", (Attempt("glm", ERRORS), BLIND), bounded=True, count=50)
        assert max(len(svg(f.light)) for f in drawn(tmp_path / "a", made)) < 24_000

    def test_names_cannot_break_out_of_a_figure(self, tmp_path: Path) -> None:
        name = "</text><script>alert(1)</script>$\\frac$\x01_" * 3
        for figure in drawn(tmp_path / "a", Made("one", (Attempt(name), BLIND))):
            root = ElementTree.fromstring(svg(figure.light))
            assert not [e for e in root.iter() if e.tag.endswith("script")]

    def test_zero_errors_and_zero_estimates_can_be_drawn(self, tmp_path: Path) -> None:
        made = Made("one", (Attempt("glm", (0.0,), estimate=0.0), BLIND))
        assert len(drawn(tmp_path / "a", made)) == 3

    def test_without_judged_attacks_there_are_no_figures(self, tmp_path: Path) -> None:
        refused = Attempt("glm", (None,), ("REFUSED",), estimate=None)
        assert drawn(tmp_path / "a", Made("one", (refused, BLIND))) == ()
        assert drawn(tmp_path / "b", Made("one", known=False)) == ()
