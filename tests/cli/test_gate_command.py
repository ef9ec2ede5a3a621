"""``exhume gate`` as a pipeline sees it: exit codes, text, JSON and JUnit."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.audit import small
from tests.audit.saved import save
from tests.cli.command import Finished, execute, invoke

from exhume.audit import Serial, run

# Two settings: one leaks every record, one is protected and has a bound.
TEXT = small.PLAIN.replace('"plain"', '"<plain> & \\"simple\\""') + small.NOISY.replace(
    "noise_multiplier = 1.0", "noise_multiplier = 20.0"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gate") / "run"
    run(small.plan(TEXT, small.audit(24)), folder, Serial())
    return folder


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The protected setting alone."""
    folder = tmp_path_factory.mktemp("private") / "run"
    text = small.NOISY.replace("noise_multiplier = 1.0", "noise_multiplier = 20.0")
    run(small.plan(text, small.audit(24)), folder, Serial())
    return folder


def gate(folder: Path, limit: float | str, *more: str | Path) -> Finished:
    return invoke("gate", folder, "--max-success", str(limit), *more)


class TestExitCodes:
    def test_0_below_the_limit(self, private: Path) -> None:
        found = gate(private, 0.9)
        assert found.code == 0
        assert found.out.splitlines()[-1] == "pass: all 1 settings are below the limit"

    def test_0_by_the_bound(self, private: Path) -> None:
        """24 targets can't show less than 14 %; the bound can."""
        (bracket,) = _summary(private)["brackets"]
        limit = bracket["ceiling"] + 1e-9
        found = gate(private, limit)
        assert found.code == 0
        assert "no attack can exceed" in found.out
        assert gate(private, min(bracket["ceiling"], bracket["reached"]["high"]) - 0.01).code == 1

    def test_1_above_the_limit(self, folder: Path) -> None:
        found = gate(folder, 0.5)
        assert found.code == 1
        assert "FAIL" in found.out
        assert found.out.splitlines()[-1].startswith("fail: 1 of 2 settings;")
        assert "glm reached 100.0%" in found.out

    def test_1_where_no_attack_ran(self, tmp_path: Path) -> None:
        text = small.PLAIN + small.audit(2, attacks='["scaler-moments"]')
        run(small.plan(text), tmp_path / "run", Serial())
        found = gate(tmp_path / "run", 1.0)
        assert (found.code, "no attack really ran" in found.out) == (1, True)
        assert found.out.startswith("INCONCLUSIVE")
        assert found.out.splitlines()[-1].startswith("inconclusive: 1 of 1 settings;")

    def test_1_without_truth(self, tmp_path: Path) -> None:
        toml = save(tmp_path).write_toml(truth=False)
        audited = invoke("audit", toml, "--out", tmp_path / "run", "--workers", "1", "--quiet")
        assert audited.code == 0
        assert "no truth" in audited.out
        found = gate(tmp_path / "run", 1.0)
        assert (found.code, "the truth is not known" in found.out) == (1, True)

    def test_1_for_an_unfinished_run(self, private: Path, tmp_path: Path) -> None:
        copy = Path(shutil.copytree(private, tmp_path / "run"))
        with closing(sqlite3.connect(copy / "records.sqlite")) as database, database:
            database.execute("DELETE FROM records WHERE attack = 'oblivious' AND target = 3")
        found = gate(copy, 1.0)
        assert found.code == 1
        assert "the audit is not finished (71 of 72 trials)" in found.out

    @pytest.mark.parametrize("limit", ["5", "50 %", "0.5", "50%"])
    def test_a_limit_in_percent(self, folder: Path, limit: str) -> None:
        found = gate(folder, limit)
        if limit == "5":
            assert "from 0 to 1, or a percentage such as 5%, got 5.0" in found.error
        else:
            assert "above the limit of 50.0%" in found.out

    @pytest.mark.parametrize("limit", ["1.5", "-0.1", "nan", "inf", "150%"])
    def test_2_for_a_bad_limit(self, folder: Path, limit: str) -> None:
        assert "--max-success must be from 0 to 1" in gate(folder, limit).error

    @pytest.mark.parametrize("arguments", [(), ("--format", "yaml")])
    def test_2_for_wrong_usage(self, folder: Path, arguments: tuple[str, ...]) -> None:
        assert invoke("gate", folder, *arguments).code == 2

    @pytest.mark.parametrize("limit", ["low", "%", "5%%", ""])
    def test_2_for_no_number(self, folder: Path, limit: str) -> None:
        assert "--max-success must be a number or a percentage" in gate(folder, limit).error

    def test_2_for_no_run_folder(self, tmp_path: Path) -> None:
        assert "is not a run folder" in gate(tmp_path, 0.5).error

    def test_2_where_the_output_can_not_be_written(self, folder: Path, tmp_path: Path) -> None:
        found = gate(folder, 0.5, "--output", tmp_path / "none" / "gate.xml")
        assert "can't be written" in found.error

    def test_through_a_real_process(self, private: Path, folder: Path, tmp_path: Path) -> None:
        assert execute("gate", private, "--max-success", "1").code == 0
        assert execute("gate", folder, "--max-success", "0.5").code == 1
        assert execute("gate", tmp_path, "--max-success", "0.5").code == 2


def _summary(folder: Path) -> dict:
    return small.strict_json(folder / "summary.json")


class TestFormats:
    def test_json(self, folder: Path) -> None:
        found = gate(folder, 0.5, "--format", "json")
        assert found.code == 1
        content = json.loads(found.out)
        assert content["passed"] is False
        assert [s["passed"] for s in content["settings"]] == [False, True]
        for setting in content["settings"]:
            assert set(setting) == {"setting", "passed", "outcome", "upper", "reason"}
            assert 0 <= setting["upper"] <= 1

    def test_junit(self, folder: Path) -> None:
        found = gate(folder, 0.5, "--format", "junit")
        assert found.code == 1
        suite = ElementTree.fromstring(found.out.encode())
        assert suite.tag == "testsuite"
        assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
        cases = suite.findall("testcase")
        assert [c.get("name") for c in cases] == ['<plain> & "simple"', "noisy"]
        failures = [c.findall("failure") for c in cases]
        assert [len(f) for f in failures] == [1, 0]
        assert "above the limit of 50.0%" in str(failures[0][0].get("message"))

    @pytest.mark.parametrize("format", ["text", "json", "junit"])
    def test_into_a_file(self, folder: Path, tmp_path: Path, format: str) -> None:
        """The file holds what the terminal would have shown, the terminal one line."""
        plain = gate(folder, 0.5, "--format", format)
        found = gate(folder, 0.5, "--format", format, "--output", tmp_path / "gate")
        assert found.code == 1
        assert len(found.out.splitlines()) == 1
        assert found.out.startswith("fail: 1 of 2 settings;")
        assert plain.out.startswith((tmp_path / "gate").read_text(encoding="utf-8").rstrip())

    def test_nothing_is_changed(self, folder: Path) -> None:
        """Asking leaves the run folder as it is."""
        before = {p.name: p.stat().st_size for p in folder.iterdir()}
        gate(folder, 0.5)
        assert {p.name: p.stat().st_size for p in folder.iterdir()} == before


def test_release_from_a_file_to_the_verdict(tmp_path: Path) -> None:
    """The whole way in one go: scikit-learn, save, audit, summary, gate."""
    toml = save(tmp_path).write_toml()
    audited = invoke("audit", toml, "--out", tmp_path / "run", "--workers", "1", "--quiet")
    assert (audited.code, audited.err) == (0, "")
    assert "glm" in audited.out
    assert "100%" in audited.out
    (bracket,) = _summary(tmp_path / "run")["brackets"]
    assert (bracket["attack"], bracket["reached"]["successes"]) == ("glm", 1)
    assert gate(tmp_path / "run", 0.5).code == 1


def test_report_renders_again_from_records_alone(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "run"))
    before = _summary(copy)
    (copy / "summary.json").unlink()
    found = invoke("report", copy)
    assert found.code == 0
    assert f"report: {copy / 'report.html'}" in found.out
    assert _summary(copy) == before
    assert invoke("report", copy, "--redact").code == 0
