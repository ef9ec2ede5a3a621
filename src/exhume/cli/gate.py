"""``exhume gate``: a pass or a fail for a pipeline."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from exhume.audit import Verdict


class Format(Enum):
    """How the verdict is written."""

    TEXT = "text"
    JSON = "json"
    JUNIT = "junit"


def gate(
    run: Annotated[Path, typer.Argument(help="The run folder.")],
    max_success: Annotated[
        float, typer.Option(help="The highest success rate of any attack that is acceptable.")
    ],
    format: Annotated[Format, typer.Option(help="What is written.")] = Format.TEXT,
    output: Annotated[
        Path | None, typer.Option(help="Write there; one line still says why on the terminal.")
    ] = None,
) -> None:
    """Exit 0 if every setting is below the limit, 1 if not or if no attack really ran, 2 on errors.

    A setting passes when the upper end of its interval, or a bound, is at most the limit.
    """
    from exhume.audit import Store, judge, summarise
    from exhume.audit.durable import write_bytes

    with Store.open(run) as store:
        verdicts = judge(summarise(store), max_success)
    text = {Format.TEXT: _text, Format.JSON: _json, Format.JUNIT: _junit}[format](verdicts)
    if output is None:
        typer.echo(text)
    else:
        write_bytes(output, (text + "\n").encode())
    if output is not None or format is Format.TEXT:
        typer.echo(_one_line(verdicts))
    raise typer.Exit(0 if all(v.passed for v in verdicts) else 1)


def _one_line(verdicts: Sequence[Verdict]) -> str:
    failed = [v for v in verdicts if not v.passed]
    if not failed:
        return f"pass: all {len(verdicts)} settings are below the limit"
    return (
        f"fail: {len(failed)} of {len(verdicts)} settings; {failed[0].setting}: {failed[0].reason}"
    )


def _text(verdicts: Sequence[Verdict]) -> str:
    return "\n".join(f"{'pass' if v.passed else 'FAIL'}  {v.setting}: {v.reason}" for v in verdicts)


def _json(verdicts: Sequence[Verdict]) -> str:
    passed = all(v.passed for v in verdicts)
    return json.dumps({"passed": passed, "settings": [asdict(v) for v in verdicts]}, indent=1)


def _junit(verdicts: Sequence[Verdict]) -> str:
    from xml.etree import ElementTree

    failures = sum(not v.passed for v in verdicts)
    attributes = {"name": "exhume", "tests": str(len(verdicts)), "failures": str(failures)}
    suite = ElementTree.Element("testsuite", attributes)
    for verdict in verdicts:
        case = ElementTree.SubElement(suite, "testcase", classname="exhume", name=verdict.setting)
        if not verdict.passed:
            ElementTree.SubElement(case, "failure", message=verdict.reason)
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(
        suite, encoding="unicode"
    )
