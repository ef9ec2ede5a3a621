"""Audits in MLflow, in a store of its own in a folder."""

from __future__ import annotations

import json
from pathlib import Path

import mlflow
import pytest
from mlflow import MlflowClient
from mlflow.entities import Run
from tests.audit import small
from tests.cli.command import invoke
from tests.docs.pages import blocks, printed

import exhume.mlflow
from exhume.audit import Serial, Store, run, summarise
from exhume.protocol.errors import InputError

ODD = small.PLAIN.replace('"plain"', '"<plain> & \\"simple\\""')
TEXT = ODD + small.NOISY.replace("noise_multiplier = 1.0", "noise_multiplier = 20.0")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two settings: one leaks every record, one has a bound."""
    folder = tmp_path_factory.mktemp("mlflow") / "run"
    run(small.plan(TEXT, small.audit(6)), folder, Serial())
    return folder


@pytest.fixture(autouse=True)
def _own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")


@pytest.fixture
def logged(folder: Path) -> str:
    with mlflow.start_run():
        return exhume.mlflow.log(folder)


def _run(run_id: str) -> Run:
    return MlflowClient().get_run(run_id)


def test_the_bracket_is_metrics_and_the_verdict_tags(folder: Path, logged: str) -> None:
    data = _run(logged).data
    with Store.open(folder) as store:
        summary = summarise(store.run())
    names = {'<plain> & "simple"': "_plain_ _ _simple_", "noisy": "noisy"}
    for bracket in summary.brackets:
        told = {
            name.rpartition("/")[2]: value
            for name, value in data.metrics.items()
            if name.startswith(f"exhume/{names[bracket.setting]}/")
        }
        assert bracket.reached is not None
        assert bracket.blind is not None
        assert told.pop("reached") == bracket.reached.rate
        assert told.pop("reached_low") == bracket.reached.low
        assert told.pop("reached_high") == bracket.reached.high
        assert told.pop("blind") == bracket.blind.rate
        assert (told.pop("targets"), told.pop("unanswered")) == (6, 0)
        # No limit where there is none: 1 would read as a finding.
        assert told.pop("limit", None) == bracket.ceiling
        assert set(told) <= {"epsilon"}
    assert data.tags["exhume.finding"] == "rebuilt"
    assert data.tags["exhume.verdict"] == "1 of 2 settings: most targets rebuilt."
    assert data.tags["exhume.complete"] == "true"


def test_the_report_is_an_artefact_without_records(
    folder: Path, logged: str, tmp_path: Path
) -> None:
    client = MlflowClient()
    listed = {one.path for one in client.list_artifacts(logged, "exhume")}
    assert listed == {f"exhume/{name}" for name in ("report.html", "report.md", "summary.json")}
    page = Path(client.download_artifacts(logged, "exhume/report.html", str(tmp_path)))
    assert "<strong>Redacted.</strong>" in page.read_text(encoding="utf-8")
    assert not (folder / "report-redacted.html").exists()


def test_the_summary_comes_back_as_it_was(folder: Path, logged: str) -> None:
    with Store.open(folder) as store:
        assert exhume.mlflow.logged(logged) == summarise(store.run())


def test_a_run_from_elsewhere_is_judged_and_tagged(logged: str) -> None:
    found = invoke("gate", "--mlflow-run", logged, "--max-success", "5%")
    assert found.code == 1
    tags = _run(logged).data.tags
    assert (tags["exhume.gate"], tags["exhume.gate.max_success"]) == ("fail", "0.05")
    assert tags["exhume.gate.reasons"] in found.out
    assert invoke("gate", "--mlflow-run", logged, "--max-success", "1").code == 0
    assert _run(logged).data.tags["exhume.gate"] == "pass"


def test_the_gate_on_a_folder_logs_it_too(folder: Path) -> None:
    with mlflow.start_run() as active:
        pass
    found = invoke("gate", folder, "--max-success", "5%", "--mlflow-run", active.info.run_id)
    assert found.code == 1
    data = _run(active.info.run_id).data
    assert data.tags["exhume.gate"] == "fail"
    assert data.metrics["exhume/noisy/targets"] == 6


def test_what_is_wrong_is_said_in_one_line(folder: Path, logged: str) -> None:
    limit = ("--max-success", "5%")
    assert "give a run folder, or --mlflow-run" in invoke("gate", *limit).error
    nobody = "0" * 32
    assert f"MLflow run {nobody}: " in invoke("gate", "--mlflow-run", nobody, *limit).error
    with mlflow.start_run() as active:
        empty = active.info.run_id
    assert "has no audit" in invoke("gate", "--mlflow-run", empty, *limit).error
    with pytest.raises(InputError, match="no active MLflow run"):
        exhume.mlflow.log(folder)
    for damage, said in (("{", "damaged"), ("[]", "damaged"), ("{}", "has schema 0")):
        MlflowClient().log_text(logged, damage, "exhume/summary.json")
        assert said in invoke("gate", "--mlflow-run", logged, *limit).error


def test_an_unfinished_audit_does_not_pass(logged: str) -> None:
    client = MlflowClient()
    text = Path(client.download_artifacts(logged, "exhume/summary.json")).read_text("utf-8")
    client.log_text(
        logged, json.dumps({**json.loads(text), "complete": False}), "exhume/summary.json"
    )
    found = invoke("gate", "--mlflow-run", logged, "--max-success", "1")
    assert (found.code, "not finished" in found.out) == (1, True)


def test_the_page_can_be_followed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    (block,) = (
        one
        for one in blocks("docs/how-to/gate.md")
        if "mlflow" in one.text and one.language == "python"
    )
    names: dict[str, object] = {}
    shown = printed(block, names)
    assert shown == [line[3:] for line in block.text.splitlines() if line.startswith("#> ")]
