"""Audits in MLflow: the verdict as tags, the bracket as metrics, the report as an artefact.

    with mlflow.start_run():
        audited = exhume.sklearn.audit(pipeline, x, y, out="run")
        exhume.mlflow.log(audited.folder)

Nothing that is logged holds a record: the report is redacted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from exhume.protocol.errors import InputError
from exhume.runlog.gate import GateOutcome, Verdict
from exhume.runlog.summary import Bracket, Summary

_SUMMARY = "exhume/summary.json"


def log(folder: str | Path, run_id: str | None = None) -> str:
    """Log an audit's run folder to an MLflow run, by default the active one; return its id.

    Tags hold the verdict (``exhume.verdict``, ``exhume.finding``), metrics the bracket of every
    setting (``exhume/SETTING/reached`` with ``_low`` and ``_high``, ``blind``, ``limit``), and the
    artefacts in ``exhume/`` the redacted report, its text, and ``summary.json``. Where no bound
    holds, there is no ``limit``. The folder stays as it is.
    """
    from exhume.report import markdown
    from exhume.report.page import document, page
    from exhume.report.verdict import verdict
    from exhume.runlog.store import Store
    from exhume.runlog.summary import summarise, summary_text

    with Store.open(Path(folder)) as store:
        found = store.run()
        summary = summarise(found)
        report = document(page(store, found, summary, redact=True))
    said, run = verdict(summary), run_id or _active()
    with _named(run) as client:
        for name, value in _metrics(summary).items():
            client.log_metric(run, name, value)
        _tag(
            client,
            run,
            {
                "verdict": said.headline,
                "finding": said.finding.value,
                "complete": str(summary.complete).lower(),
                "version": summary.exhume_version,
            },
        )
        client.log_text(run, report, "exhume/report.html")
        client.log_text(run, markdown(found.header, summary), "exhume/report.md")
        client.log_text(run, summary_text(summary), _SUMMARY)
    return run


def logged(run_id: str) -> Summary:
    """Return the summary of the audit that was logged to an MLflow run."""
    import tempfile

    from exhume.runlog.codec import decoded
    from exhume.runlog.summary import SCHEMA_VERSION

    with _named(run_id) as client, tempfile.TemporaryDirectory() as folder:
        if all(one.path != _SUMMARY for one in client.list_artifacts(run_id, "exhume")):
            raise InputError(f"MLflow run {run_id} has no audit: log one (exhume.mlflow.log)")
        text = Path(client.download_artifacts(run_id, _SUMMARY, folder)).read_text("utf-8")
    try:
        found = decoded(Summary, json.loads(text))
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{_SUMMARY} of MLflow run {run_id} is damaged: {error}") from None
    if found.schema_version != SCHEMA_VERSION:
        raise InputError(
            f"{_SUMMARY} of MLflow run {run_id} has schema {found.schema_version}, this is Exhume "
            f"with schema {SCHEMA_VERSION}: audit again"
        )
    return found


def log_gate(run_id: str, verdicts: Sequence[Verdict], max_success: float) -> None:
    """Tag an MLflow run with the gate's verdict: ``exhume.gate``, its limit and its reasons."""
    outcomes = {verdict.outcome for verdict in verdicts}
    order = (GateOutcome.FAIL, GateOutcome.INCONCLUSIVE, GateOutcome.PASS)
    worst = next(outcome for outcome in order if outcome in outcomes)
    reasons = "\n".join(f"{one.outcome}  {one.setting}: {one.reason}" for one in verdicts)
    tags = {"gate": worst.lower(), "gate.max_success": f"{max_success:g}", "gate.reasons": reasons}
    with _named(run_id) as client:
        _tag(client, run_id, tags)


def _tag(client: Any, run_id: str, tags: Mapping[str, str]) -> None:
    for name, text in tags.items():
        client.set_tag(run_id, f"exhume.{name}", text[:5000])


def _metrics(summary: Summary) -> dict[str, float]:
    epsilons = {setting.name: setting.ceiling.epsilon for setting in summary.settings}
    found: dict[str, float] = {}
    for bracket in summary.brackets:
        name = _metric_name(bracket.setting)
        while f"exhume/{name}/targets" in found:
            name += "_"
        numbers = {**_bracket(bracket), "epsilon": epsilons[bracket.setting]}
        told = {key: value for key, value in numbers.items() if value is not None}
        found |= {f"exhume/{name}/{key}": float(value) for key, value in told.items()}
    return found


def _bracket(bracket: Bracket) -> dict[str, float | None]:
    reached, blind = bracket.reached, bracket.blind
    return {
        "targets": bracket.targets,
        "unanswered": bracket.unanswered,
        "reached": None if reached is None else reached.rate,
        "reached_low": None if reached is None else reached.low,
        "reached_high": None if reached is None else reached.high,
        "blind": None if blind is None else blind.rate,
        "limit": bracket.ceiling,
        "empirical_epsilon": bracket.empirical_epsilon,
    }


def _metric_name(setting: str) -> str:
    """Return a setting's name with the characters that MLflow takes."""
    return re.sub(r"[^A-Za-z0-9_\-. ]", "_", setting)[:150].strip(" .") or "_"


def _active() -> str:
    _client()
    import mlflow

    run = mlflow.active_run()
    if run is None:
        raise InputError(
            "there is no active MLflow run: call this inside mlflow.start_run(), or give run_id"
        )
    return str(run.info.run_id)


def _client() -> Any:
    try:
        from mlflow import MlflowClient
    except ImportError:
        raise InputError("MLflow is not installed: pip install 'exhume[mlflow]'") from None
    return MlflowClient()


@contextmanager
def _named(run_id: str) -> Iterator[Any]:
    """Give the client of the tracking server; what MLflow refuses is said in one line."""
    _client()
    from mlflow.exceptions import MlflowException

    try:
        yield _client()
    except MlflowException as error:
        reason = " ".join(str(error).split())[:300]
        raise InputError(f"MLflow run {run_id}: {reason}") from None
