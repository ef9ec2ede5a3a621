"""``exhume show``, ``view``, ``compare`` and ``report --format``, on runs that are written here."""

from __future__ import annotations

import json
import re
import shutil
import sys
import webbrowser
from pathlib import Path

import pytest
from tests.cli.command import invoke
from tests.report.runs import BLIND, REFUSED, Attempt, Made, write

LEAKING = Made("clinic", (Attempt("glm", (0.01,)), REFUSED, BLIND), count=40)
SAFER = Made("clinic", (Attempt("glm", (0.01, 0.4, 0.4, 0.4)), REFUSED, BLIND), count=40)
HOSTILE = "a|b <img src=x> *c* [d](e)"


def plain(text: str) -> str:
    return " ".join(text.replace("\u00a0", " ").split())


class TestShow:
    def test_it_prints_the_verdict_and_the_bracket(self, tmp_path: Path) -> None:
        found = invoke("show", write(tmp_path / "run", LEAKING, Made("other")))
        assert found.code == 0
        assert found.out.startswith("2 of 2 settings: most targets rebuilt.")
        assert "clinic glm 100% [91%–100%] 0% none" in plain(found.out)

    def test_json_is_the_summary(self, tmp_path: Path) -> None:
        folder = write(tmp_path / "run", LEAKING)
        assert invoke("report", folder).code == 0
        found = invoke("show", folder, "--json")
        assert json.loads(found.out) == json.loads((folder / "summary.json").read_text())

    def test_an_unfinished_run_says_so_first(self, tmp_path: Path) -> None:
        found = invoke("show", write(tmp_path / "run", LEAKING, expected=900))
        assert found.out.startswith("unfinished: 120 of 900 trials are done")

    def test_what_is_no_run_is_refused(self, tmp_path: Path) -> None:
        assert "is not a run folder" in invoke("show", tmp_path).error


class TestView:
    @pytest.fixture
    def opened(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        found: list[str] = []
        monkeypatch.setattr(webbrowser, "open", lambda url: not found.append(url))
        return found

    def test_it_renders_what_is_missing_and_opens_it(
        self, tmp_path: Path, opened: list[str]
    ) -> None:
        folder = write(tmp_path / "run", LEAKING)
        assert invoke("view", folder).out.strip() == f"report: {folder / 'report.html'}"
        assert opened == [(folder / "report.html").as_uri()]
        assert (folder / "report.html").is_file()

    def test_where_only_a_redacted_report_was_wanted_that_one_is_opened(
        self, tmp_path: Path, opened: list[str]
    ) -> None:
        folder = write(tmp_path / "run", LEAKING)
        invoke("report", folder, "--redact")
        invoke("view", folder)
        assert opened == [(folder / "report-redacted.html").as_uri()]
        assert not (folder / "report.html").exists()

    def test_without_a_browser_the_path_is_printed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(webbrowser, "open", lambda url: False)
        folder = write(tmp_path / "run", LEAKING)
        assert invoke("view", folder).out.startswith("no browser was found; open ")

    def test_a_page_in_a_folder_that_is_no_run_is_not_opened(
        self, tmp_path: Path, opened: list[str]
    ) -> None:
        (tmp_path / "report.html").write_text("not ours")
        assert "is not a run folder" in invoke("view", tmp_path).error
        assert opened == []


class TestCompare:
    def test_what_got_better_has_an_interval(self, tmp_path: Path) -> None:
        folders = write(tmp_path / "a", LEAKING), write(tmp_path / "b", SAFER)
        found = invoke("compare", *folders, "--json")
        (change,) = json.loads(found.out)["changes"]
        assert change["verdict"] == "less is rebuilt"
        # Newcombe 1998, method 10: Wilson's intervals are [0.1419, 0.4019] and [0.9124, 1], so
        # that the ends are −0.75 − √(0.1081² + 0²) and −0.75 + √(0.1519² + 0.0876²).
        assert change["change"] == pytest.approx(-0.75)
        assert (change["low"], change["high"]) == pytest.approx((-0.8581, -0.5747), abs=1e-3)
        text = plain(invoke("compare", *folders).out)
        assert "clinic 100% 25% -75%" in text
        assert "less is rebuilt" in text
        back = json.loads(invoke("compare", *folders[::-1], "--json").out)["changes"][0]
        assert back["verdict"] == "more is rebuilt"

    def test_two_runs_alike_are_undecided(self, tmp_path: Path) -> None:
        folder = write(tmp_path / "a", SAFER)
        (change,) = json.loads(invoke("compare", folder, folder, "--json").out)["changes"]
        assert change["verdict"] == "undecided"
        assert change["low"] < 0 < change["high"]

    def test_single_settings_are_compared_whatever_they_are_called(self, tmp_path: Path) -> None:
        folders = write(tmp_path / "a", Made("v1")), write(tmp_path / "b", Made("v2"))
        assert "v1 → v2" in invoke("compare", *folders).out

    def test_settings_of_one_run_alone_are_named(self, tmp_path: Path) -> None:
        one = write(tmp_path / "a", Made("x"), Made("y"))
        other = write(tmp_path / "b", Made("x"), Made("z"))
        text = plain(invoke("compare", one, other).out)
        assert f"only in {one}: y" in text
        assert f"only in {other}: z" in text
        apart = write(tmp_path / "c", Made("p"), Made("q"))
        assert (
            "have no setting in common: x, y there, p, q here"
            in invoke("compare", one, apart).error
        )

    def test_what_counted_as_rebuilt_must_be_the_same(self, tmp_path: Path) -> None:
        one, other = write(tmp_path / "a", LEAKING), write(tmp_path / "b", LEAKING, closeness=0.5)
        assert "cannot be compared" in invoke("compare", one, other).error

    def test_what_was_not_judged_is_not_known(self, tmp_path: Path) -> None:
        one, other = write(tmp_path / "a", LEAKING), write(tmp_path / "b", Made("x", known=False))
        (change,) = json.loads(invoke("compare", one, other, "--json").out)["changes"]
        assert (change["verdict"], change["low"]) == ("not known", None)


class TestFormats:
    def test_markdown_has_the_first_page_and_no_value(self, tmp_path: Path) -> None:
        made = Made("table", (Attempt("glm", (1e-9,)), REFUSED, BLIND), shape=(7,), title=HOSTILE)
        folder = write(tmp_path / "run", made)
        assert invoke("report", folder, "--format", "md").code == 0
        text = (folder / "report.md").read_text().replace("\u00a0", " ")
        assert "| table | 1 of 2 | 100 % \\[69–100 %\\] | 0 % | none | 10 records |" in text
        assert "- scaler: the release holds no scaler." in text
        for value in made.targets().ravel():
            assert f"{value:.4f}" not in text

    def test_a_model_card_has_metadata_that_yaml_reads(self, tmp_path: Path) -> None:
        yaml = pytest.importorskip("yaml")
        made = Made("one", title=HOSTILE, bounded=True)
        folder = write(tmp_path / "run", made, Made("two"))
        assert invoke("report", folder, "--format", "model-card").code == 0
        text = (folder / "model-card.md").read_text()
        _, metadata, body = text.split("---\n", 2)
        (entry,) = yaml.safe_load(metadata)["model-index"]
        first, second = entry["results"]
        assert first["dataset"] == {"type": "training-data", "name": HOSTILE}
        assert first["task"]["type"] == "reconstruction-attack"
        values = {one["type"]: one["value"] for one in first["metrics"]}
        assert values == {
            "attack-success": 1.0,
            "blind-guess": 0.0,
            "proven-limit": 0.4,
            "accuracy": 0.9,
        }
        assert {one["type"]: one["value"] for one in second["metrics"]}["proven-limit"] == "none"
        assert "## Privacy: reconstruction of training records" in body
        assert "<img" not in body.replace("\\<img", "")

    @pytest.mark.browser
    @pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium on the path")
    def test_a_pdf_has_the_first_pages_alone(self, tmp_path: Path) -> None:
        folder = write(tmp_path / "run", LEAKING, Made("other"))
        assert invoke("report", folder, "--format", "pdf", "--redact").code == 0
        content = (folder / "report-redacted.pdf").read_bytes()
        assert content.startswith(b"%PDF")
        assert len(re.findall(rb"/Type\s*/Page\b", content)) <= 2

    def test_without_a_browser_a_pdf_is_refused_in_one_line(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", str(Path(sys.executable).parent / "nowhere"))
        found = invoke("report", write(tmp_path / "run", LEAKING), "--format", "pdf")
        assert "a PDF needs one of chromium" in found.error
