"""The first page, as it is filed: what was audited, by whom, with what, and what was not tested."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from exhume.protocol.reconstruction import Status
from exhume.report.numbers import counted, limit_text, rate_text
from exhume.report.verdict import rows_of
from exhume.runlog.run import Header
from exhume.runlog.setting import Setting
from exhume.runlog.summary import Bracket, Summary

_MOST_SETTINGS = 12
"""Settings by name on a page that is filed; the appendix has all of them."""
_MOST_COLUMNS = 12


@dataclass(frozen=True)
class SettingOutcome:
    """One setting in a line: its bracket, how many attacks ran, and what came out."""

    name: str
    reached: str
    blind: str
    ceiling: str
    ran: str
    rebuilt: str


@dataclass(frozen=True)
class FirstPage:
    """What a page needs to be filed; ``subject`` has pairs of a name and a text."""

    title: str
    banner: str
    subject: tuple[tuple[str, str], ...]
    files: tuple[tuple[str, str], ...]
    outcomes: tuple[SettingOutcome, ...]
    more: int
    untested: tuple[str, ...]


def first_page(
    header: Header, summary: Summary, order: Sequence[Bracket], *, redact: bool
) -> FirstPage:
    """Return the first page; ``order`` has the brackets with the worst in front."""
    settings = {setting.name: setting for setting in summary.settings}
    outcomes = tuple(_outcome(bracket, settings, summary) for bracket in order)
    return FirstPage(
        title=title_of(header, summary),
        banner=banner(redact=redact),
        subject=_subject(header, summary),
        files=tuple(sorted(header.files.items())),
        outcomes=outcomes[:_MOST_SETTINGS],
        more=max(0, len(outcomes) - _MOST_SETTINGS),
        untested=tuple(_untested(summary)),
    )


def title_of(header: Header, summary: Summary) -> str:
    """Return the audit's own title, or else what its settings are called."""
    if header.title:
        return header.title
    titles = [bracket.title or bracket.setting for bracket in summary.brackets]
    if len(titles) != 1:
        return f"Audit of {counted(len(titles), 'setting')}"
    return titles[0] if titles[0] != "audit" else _described(header) or "Audit of 1 setting"


def _described(header: Header) -> str:
    """Say of an audit without a title what is released, and what of: ``logistic, patients.csv``."""
    tables: list[dict[str, Any]] = json.loads(header.config).get("setting") or [{}]
    release, data = (tables[0].get(name) or {} for name in ("release", "data"))
    model, records = release.get("model") or release.get("estimator"), data.get("file")
    found = (model, data.get("name") if records is None else PurePath(records).name)
    return ", ".join(part for part in found if isinstance(part, str))


def banner(*, redact: bool) -> str:
    """Return who may see the page."""
    if redact:
        return "Redacted: no pictures and no values of records"
    return "Confidential: shows private records and reconstructions of them"


def _subject(header: Header, summary: Summary) -> tuple[tuple[str, str], ...]:
    trials = f"{summary.trials:,} of {summary.expected:,} trials"
    pairs = (
        ("Date", header.started.replace("T", " ").replace("+00:00", " UTC")),
        ("Author", header.author),
        ("Made with", f"Exhume {header.exhume_version}" if header.exhume_version else ""),
        ("Extent", f"{counted(len(summary.brackets), 'setting')}, {trials}"),
    )
    return tuple((name, text) for name, text in pairs if text)


def _outcome(bracket: Bracket, settings: dict[str, Setting], summary: Summary) -> SettingOutcome:
    attacks = [row for row in rows_of(summary, bracket.setting) if not row.baseline]
    ran = sum(row.ran > 0 for row in attacks)
    return SettingOutcome(
        name=bracket.setting,
        reached="not known" if bracket.reached is None else rate_text(bracket.reached),
        blind="not known" if bracket.blind is None else rate_text(bracket.blind).split(" [")[0],
        ceiling=limit_text(bracket.ceiling),
        ran=f"{ran} of {len(attacks)}",
        rebuilt=_rebuilt(bracket, settings[bracket.setting]),
    )


def _rebuilt(bracket: Bracket, setting: Setting) -> str:
    """Say what came out, by the names that the data gives it."""
    if bracket.reached is None:
        return "not known"
    found = bracket.reached.successes
    if not found:
        return "nothing"
    if bracket.candidates:
        return f"which record was trained on, {found} times"
    data = setting.data
    if data.picture:
        return counted(found, "picture")
    records = counted(found, "record")
    if not data.columns:
        return records
    given = {column.name for column in data.schema if column.given}
    unknown = [name for name in data.columns if name not in given]
    names, more = unknown[:_MOST_COLUMNS], len(unknown) - _MOST_COLUMNS
    return f"{records}: {', '.join(names)}" + (f" and {more} more values" if more > 0 else "")


def _untested(summary: Summary) -> list[str]:
    """Say what the numbers do not cover; attacks with the same reason share a sentence."""
    said = [
        f"{one.setting}: {one.of - one.run:,} of {one.of:,} targets, to fit {summary.budget}."
        for one in summary.left_out
    ]
    if not summary.complete:
        said.append(
            f"{summary.expected - summary.trials:,} planned trials: the audit is unfinished."
        )
    said += [
        f"{bracket.setting}: {counted(bracket.unanswered, 'target')} on which no attack ran."
        for bracket in summary.brackets
        if bracket.unanswered
    ]
    return [*said, *_refused(summary)]


def _refused(summary: Summary) -> list[str]:
    """Attacks that ran on no setting, with the reason of the first."""
    rows = [row for row in summary.rows if not row.baseline]
    ran = {row.attack for row in rows if row.ran}
    reasons = {row.attack: _reason(row.statuses, row.message) for row in reversed(rows)}
    return [f"{attack}: {reason}" for attack, reason in reasons.items() if attack not in ran]


def _reason(statuses: dict[str, int], message: str) -> str:
    # The text of an error may quote a record.
    crashed = Status.CRASHED.name in statuses
    return "it stopped with an error." if crashed else f"{message.rstrip('.')}."
