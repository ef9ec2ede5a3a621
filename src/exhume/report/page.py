"""From a run folder to ``report.html``: gathers the parts, fills the templates, writes the file."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exhume.protocol.errors import InputError
from exhume.report.advice import Advice, advice
from exhume.report.bars import Bar, three_bars
from exhume.report.first_page import FirstPage, first_page
from exhume.report.grid_part import GridPart, grid_parts
from exhume.report.grids import grids
from exhume.report.lowering import DefenceComparison, comparisons
from exhume.report.setting_part import ReportedSetting, SettingPart, setting_part
from exhume.report.tables import TrialTable, trial_table
from exhume.report.verdict import Headline, finding_of, rows_of, verdict, worst_first
from exhume.runlog.run import Run
from exhume.runlog.store import Store
from exhume.runlog.summary import Bracket, Summary, summarise
from exhume.runtime.durable import write_bytes

_FIGURES_FOR = 20
"""Settings with figures: three of 25 kB each, so that the page stays below 10 MB."""
_REDACTED = b"<strong>Redacted.</strong>"
"""What only redacted pages contain: in any other text, tags are escaped."""


@dataclass(frozen=True)
class Page:
    """Everything the templates see."""

    summary: Summary
    first: FirstPage
    advice: tuple[Advice, ...]
    verdict: Headline
    finished: bool
    bars: tuple[Bar, ...]
    grids: tuple[GridPart, ...]
    parts: tuple[SettingPart, ...]
    comparisons: tuple[DefenceComparison, ...]
    trials: TrialTable
    config: str
    redact: bool
    figures_for: int = _FIGURES_FOR


def render(folder: Path, summary: Summary | None = None, *, redact: bool = False) -> Path:
    """Write ``report.html`` into a run folder, finished or not, and return its path.

    Reads the log and its artefacts, and runs nothing; whoever has the folder's ``summary`` hands it
    on. With ``redact`` no picture and no value of a record gets into the page, which is
    ``report-redacted.html``: neither page replaces the other. The same log gives the same bytes.
    """
    with Store.open(folder) as store:
        run = store.run()
        html = document(page(store, run, summary or summarise(run), redact=redact))
    path = folder / ("report-redacted.html" if redact else "report.html")
    if not redact:
        _require_private(path)
    write_bytes(path, html.encode())
    return path


def _require_private(path: Path) -> None:
    """Refuse to replace a redacted page of that name, as earlier versions wrote it."""
    if path.is_file() and _REDACTED in path.read_bytes():
        raise InputError(
            f"{path} is redacted, and this report would show private records in its place; "
            "rename or remove it, or add --redact"
        )


def page(store: Store, run: Run, summary: Summary, *, redact: bool) -> Page:
    """Gather what the page shows from an open run folder and what was read from it."""
    order = worst_first(summary)
    cases = [_case(store, run, summary, bracket) for bracket in order]
    anchors = [f"setting-{index}" for index in range(len(cases))]
    found = grids(summary, dict(zip(anchors, cases, strict=True)))
    shortened = {m.case.setting.name for grid in found for m in grid.members if m.defence}
    return Page(
        summary=summary,
        first=first_page(run.header, summary, order, redact=redact),
        advice=advice(run.header, summary, order),
        verdict=verdict(summary),
        finished=summary.complete and summary.trials > 0,
        bars=_bars(cases, summary.closeness),
        grids=grid_parts(found, summary.tradeoffs, redact=redact),
        parts=tuple(
            setting_part(
                case,
                anchor=anchors[index],
                redact=redact,
                draw_figures=index < _FIGURES_FOR,
                # Its pictures and trials are in the grid; the first is what the page opens with.
                short=index > 0 and case.setting.name in shortened,
            )
            for index, case in enumerate(cases)
        ),
        comparisons=comparisons(summary, run.header.undefended),
        trials=trial_table(run.outcomes, redact=redact),
        config=run.header.config,
        redact=redact,
    )


def document(shown: Page) -> str:
    """Return the page as HTML, with a content-security policy that allows only its own parts."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("exhume.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    sources = ("report.css", "grid.css", "print.css", "report.js")
    *styles, script = (_source(environment, name) for name in sources)
    own = (_printed_banner(shown.first.banner), *(grid.style for grid in shown.grids))
    style = "\n".join([*styles, *own])
    policy = (
        "default-src 'none'; img-src data:; "
        f"style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    template = environment.get_template("report.html")
    return template.render(page=shown, policy=policy, style=style, script=script)


def _case(store: Store, run: Run, summary: Summary, bracket: Bracket) -> ReportedSetting:
    rows = rows_of(summary, bracket.setting)
    setting, mine = run.setting(bracket.setting), run.of(bracket.setting)
    finding = finding_of(bracket, rows)
    return ReportedSetting(store, setting, bracket, rows, mine, finding, summary.closeness)


def _bars(cases: Sequence[ReportedSetting], closeness: float) -> tuple[Bar, ...]:
    if not cases:
        return ()
    worst = cases[0]
    return three_bars(worst.bracket, worst.finding, closeness, worst.setting.ceiling)


def _printed_banner(text: str) -> str:
    """Put the banner on every printed page, with the page's number."""
    return (
        f'@media print {{ @page {{ @top-center {{ content: "{text}"; font: 600 8pt sans-serif; }} '
        '@bottom-right { content: "Page " counter(page) " of " counter(pages); '
        "font: 8pt sans-serif; } } }"
    )


def _source(environment: Any, name: str) -> str:
    """A file of ours that goes into the page as it is."""
    text: str = environment.loader.get_source(environment, name)[0]
    return text


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
