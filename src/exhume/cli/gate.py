"""``exhume gate``: pass or fail, for a pipeline."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exhume.protocol.errors import InputError

if TYPE_CHECKING:
    from exhume.audit import Summary, Verdict


class Format(Enum):
    """The output format of the verdict."""

    TEXT = "text"
    JSON = "json"
    JUNIT = "junit"


def gate(
    *,
    run: Annotated[
        Path | None, typer.Argument(help="The run folder. Default: what --mlflow-run holds.")
    ] = None,
    max_success: Annotated[
        str,
        typer.Option(
            metavar="SHARE",
            help="The highest acceptable success rate of any attack, such as 0.05 or 5%.",
        ),
    ],
    format: Annotated[Format, typer.Option(help="The output format.")] = Format.TEXT,
    output: Annotated[
        Path | None,
        typer.Option(help="Write to this file. One line on the terminal still gives the reason."),
    ] = None,
    mlflow_run: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Log report, bracket and verdict to this MLflow run (extra: mlflow). Without a "
            "run folder, judge the audit that is logged there.",
        ),
    ] = None,
) -> None:
    """Exit with 0 if every setting is below the limit, 1 if not or inconclusive, 2 on errors.

    A setting passes if the upper end of its interval, or its bound, is at most the limit. It is
    inconclusive if fewer targets were rebuilt, but too few were tried, or if no attack ran.
    """
    from exhume.audit import judge
    from exhume.runtime.durable import write_bytes

    limit = _share(max_success)
    verdicts = judge(_summary(run, mlflow_run), limit)
    text = {Format.TEXT: _text, Format.JSON: _json, Format.JUNIT: _junit}[format](verdicts)
    if output is None:
        typer.echo(text)
    else:
        write_bytes(output, (text + "\n").encode())
    if output is not None or format is Format.TEXT:
        typer.echo(_one_line(verdicts))
    if mlflow_run is not None:
        _log(run, mlflow_run, verdicts, limit)
    raise typer.Exit(0 if all(v.passed for v in verdicts) else 1)


def _summary(run: Path | None, mlflow_run: str | None) -> Summary:
    from exhume.audit import Store, summarise

    if run is not None:
        with Store.open(run) as store:
            return summarise(store.run())
    if mlflow_run is None:
        raise InputError("give a run folder, or --mlflow-run with the id of an MLflow run")
    from exhume.mlflow import logged

    return logged(mlflow_run)


def _log(run: Path | None, mlflow_run: str, verdicts: Sequence[Verdict], limit: float) -> None:
    from exhume import mlflow

    if run is not None:
        mlflow.log(run, mlflow_run)
    mlflow.log_gate(mlflow_run, verdicts, limit)


def _share(text: str) -> float:
    """Return a share between 0 and 1, written as a number or as a percentage."""
    number = text.strip()
    try:
        value = float(number.removesuffix("%"))
    except ValueError:
        raise InputError(f"--max-success must be a number or a percentage, got {text!r}") from None
    return value / 100 if number.endswith("%") else value


def _one_line(verdicts: Sequence[Verdict]) -> str:
    from exhume.runlog.gate import GateOutcome

    failed = [v for v in verdicts if not v.passed]
    if not failed:
        return f"pass: all {len(verdicts)} settings are below the limit"
    above = [v for v in failed if v.outcome is GateOutcome.FAIL]
    word, first = ("fail", above[0]) if above else ("inconclusive", failed[0])
    count = len(above or failed)
    return f"{word}: {count} of {len(verdicts)} settings; {first.setting}: {first.reason}"


def _text(verdicts: Sequence[Verdict]) -> str:
    return "\n".join(f"{v.outcome}  {v.setting}: {v.reason}" for v in verdicts)


def _json(verdicts: Sequence[Verdict]) -> str:
    passed = all(v.passed for v in verdicts)
    settings = [
        {
            "setting": v.setting,
            "passed": v.passed,
            "outcome": v.outcome.lower(),
            "upper": v.upper,
            "reason": v.reason,
        }
        for v in verdicts
    ]
    return json.dumps({"passed": passed, "settings": settings}, indent=1)


def _junit(verdicts: Sequence[Verdict]) -> str:
    from xml.etree import ElementTree

    failures = sum(not v.passed for v in verdicts)
    attributes = {"name": "exhume", "tests": str(len(verdicts)), "failures": str(failures)}
    suite = ElementTree.Element("testsuite", attributes)
    for verdict in verdicts:
        case = ElementTree.SubElement(suite, "testcase", classname="exhume", name=verdict.setting)
        if not verdict.passed:
            ElementTree.SubElement(
                case, "failure", type=verdict.outcome.lower(), message=verdict.reason
            )
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(
        suite, encoding="unicode"
    )
