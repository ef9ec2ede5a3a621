"""``exhume report``: render the report of a run folder again, from its log alone."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from exhume.audit import Summary
    from exhume.runlog.run import Run


class ReportFormat(StrEnum):
    """The formats of a report."""

    HTML = "html"
    PDF = "pdf"
    MD = "md"
    MODEL_CARD = "model-card"


def report(
    run: Annotated[Path, typer.Argument(help="The run folder.")],
    redact: Annotated[
        bool, typer.Option("--redact", help="Omit the pictures and values of records.")
    ] = False,
    format: Annotated[
        ReportFormat,
        typer.Option(
            help="html: the whole report. pdf: its first pages (needs Chromium). md: the same as "
            "text. model-card: a section for a Hugging Face model card."
        ),
    ] = ReportFormat.HTML,
) -> None:
    """Render the report and summary.json from a run folder. No attack is run again.

    With --redact, the file is named report-redacted. Text and model cards never contain pictures
    or values of records.
    """
    from exhume.audit import Store, summarise
    from exhume.runlog.summary import write_summary

    with Store.open(run) as store:
        log = store.run()
    summary = summarise(log)
    write_summary(summary, run)
    typer.echo(f"report: {_written(run, log, summary, format, redact=redact)}")


def _written(folder: Path, log: Run, summary: Summary, kind: ReportFormat, *, redact: bool) -> Path:
    from exhume.report import markdown, model_card, print_pdf, render
    from exhume.runtime.durable import write_bytes

    if kind in (ReportFormat.HTML, ReportFormat.PDF):
        page = render(folder, summary, redact=redact)
        return page if kind is ReportFormat.HTML else print_pdf(page)
    card = kind is ReportFormat.MODEL_CARD
    text = (model_card if card else markdown)(log.header, summary)
    path = folder / ("model-card.md" if card else "report.md")
    write_bytes(path, text.encode())
    return path
