"""From a run folder to ``report.html``: gathers the parts, fills the templates, writes the file."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exhume.audit.durable import write_bytes
from exhume.audit.record import Record
from exhume.audit.store import Store
from exhume.audit.summary import Bracket, Summary, summarise
from exhume.report.bars import Bar, three_bars
from exhume.report.facts import Facts, read_facts
from exhume.report.gridpart import GridPart, grid_parts
from exhume.report.grids import grids
from exhume.report.lowering import Comparison, comparisons
from exhume.report.settings import Case, SettingPart, setting_part
from exhume.report.trials import TrialTable, trial_table
from exhume.report.verdict import Verdict, finding_of, rows_of, verdict, worst_first

_FIGURES_FOR = 20
"""Settings with figures: three of 25 kB each, so that the page stays below 10 MB."""


@dataclass(frozen=True)
class Page:
    """Everything the templates see."""

    summary: Summary
    verdict: Verdict
    finished: bool
    bars: tuple[Bar, ...]
    grids: tuple[GridPart, ...]
    parts: tuple[SettingPart, ...]
    comparisons: tuple[Comparison, ...]
    trials: TrialTable
    config: str
    redact: bool
    figures_for: int = _FIGURES_FOR


def render(folder: Path, *, redact: bool = False) -> Path:
    """Write ``report.html`` into a run folder, finished or not, and return its path.

    Reads records, facts and artefacts, and runs nothing. With ``redact`` no picture and no value
    of a record gets into it. The same records give the same bytes.
    """
    with Store.open(folder) as store:
        html = document(page(store, redact=redact))
    path = folder / "report.html"
    write_bytes(path, html.encode())
    return path


def page(store: Store, *, redact: bool) -> Page:
    """Gather what the page shows from an open run folder."""
    summary, records = summarise(store), store.records()
    config = json.loads(store.meta("config") or "{}")
    facts = {name: read_facts(plain) for name, plain in store.facts().items()}
    brackets = worst_first(summary)
    cases = [
        _case(store, summary, bracket, facts[bracket.setting], records) for bracket in brackets
    ]
    anchors = [f"setting-{index}" for index in range(len(cases))]
    found = grids(summary, dict(zip(anchors, cases, strict=True)))
    shortened = {m.case.facts.name for grid in found for m in grid.members if m.defence}
    return Page(
        summary=summary,
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
                short=index > 0 and case.facts.name in shortened,
            )
            for index, case in enumerate(cases)
        ),
        comparisons=comparisons(summary, facts, config),
        trials=trial_table(records, redact=redact),
        config=json.dumps(config, indent=2, ensure_ascii=False, sort_keys=True),
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
    sources = ("report.css", "grid.css", "report.js")
    *styles, script = (_source(environment, name) for name in sources)
    style = "\n".join([*styles, *(grid.style for grid in shown.grids)])
    policy = (
        "default-src 'none'; img-src data:; "
        f"style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    template = environment.get_template("report.html")
    return template.render(page=shown, policy=policy, style=style, script=script)


def _case(
    store: Store, summary: Summary, bracket: Bracket, facts: Facts, records: Sequence[Record]
) -> Case:
    rows = rows_of(summary, bracket.setting)
    mine = tuple(record for record in records if record.trial.setting == bracket.setting)
    finding = finding_of(bracket, rows)
    return Case(store, facts, bracket, rows, mine, finding, summary.closeness)


def _bars(cases: Sequence[Case], closeness: float) -> tuple[Bar, ...]:
    return three_bars(cases[0].bracket, cases[0].finding, closeness) if cases else ()


def _source(environment: Any, name: str) -> str:
    """A file of ours that goes into the page as it is."""
    text: str = environment.loader.get_source(environment, name)[0]
    return text


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
