"""The first page as Markdown, and as a section of a model card on Hugging Face."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from exhume.report.advice import advice
from exhume.report.first_page import FirstPage, first_page
from exhume.report.numbers import counted
from exhume.report.verdict import Headline, verdict, worst_first
from exhume.runlog.run import Header
from exhume.runlog.setting import Setting
from exhume.runlog.summary import Bracket, Summary

_BETWEEN = (
    "The attacks that ran show *at least* this much; a bound proves *at most* this much. Between "
    "the two, nothing is known."
)


def markdown(header: Header, summary: Summary) -> str:
    """Return the first page as Markdown: no pictures and no values of records."""
    order = worst_first(summary)
    page, said = first_page(header, summary, order, redact=True), verdict(summary)
    parts = [f"# {_plain(page.title)}", *_said(said, summary), _subject(page)]
    parts += _adversary(summary, order)
    parts += ["## What ran, and what came out", _table(page), "## What to do"]
    for one in advice(header, summary, order):
        parts += [f"### {_plain(one.title)}", one.text, f"```toml\n{one.toml}\n```"]
    parts += ["## What was not tested", _list(page.untested), _BETWEEN]
    return _joined(parts)


def model_card(header: Header, summary: Summary) -> str:
    """Return a section for a model card, below metadata in the conventions of Hugging Face.

    The metadata are a ``model-index`` with one result per setting, to be merged into the card's.
    """
    order = worst_first(summary)
    page, said = first_page(header, summary, order, redact=True), verdict(summary)
    parts = ["\n".join(["---", *_metadata(page, summary), "---"])]
    parts += ["## Privacy: reconstruction of training records", *_said(said, summary)]
    parts += [_subject(page), *_adversary(summary, order), _table(page)]
    parts += ["**Not tested:**" if page.untested else "", _list(page.untested), _BETWEEN]
    return _joined(parts)


def _metadata(page: FirstPage, summary: Summary) -> Iterator[str]:
    """Text is written as JSON, which is YAML."""
    settings = {setting.name: setting for setting in summary.settings}
    yield from ("tags:", "- privacy", "- reconstruction-audit", "- exhume", "model-index:")
    yield from (f"- name: {json.dumps(page.title)}", "  results:")
    for bracket in summary.brackets:
        yield from _result(bracket, settings[bracket.setting])


def _result(bracket: Bracket, setting: Setting) -> Iterator[str]:
    yield from ("  - task:", "      type: reconstruction-attack")
    yield "      name: Reconstruction of training records"
    yield from ("    dataset:", "      type: training-data")
    yield f"      name: {json.dumps(bracket.title or bracket.setting)}"
    yield "    metrics:"
    reached, ceiling = bracket.reached, bracket.ceiling
    if reached is not None:
        yield from _metric("attack-success", f"{reached.rate:.4f}", "Attacks reached (at least)")
    if bracket.blind is not None:
        yield from _metric("blind-guess", f"{bracket.blind.rate:.4f}", "Blind guess")
    limit = "none" if ceiling is None or ceiling >= 1.0 else f"{ceiling:.4f}"
    yield from _metric("proven-limit", limit, "Proven limit (at most)")
    if setting.model.name == "accuracy" and setting.model.value is not None:
        yield from _metric("accuracy", f"{setting.model.value:.4f}", "Accuracy on unused records")


def _metric(kind: str, value: str, name: str) -> Sequence[str]:
    return (f"    - type: {kind}", f"      value: {value}", f"      name: {name}")


def _said(said: Headline, summary: Summary) -> list[str]:
    unfinished = "" if summary.complete else "**Unfinished audit: all results are provisional.**"
    return [f"**{_plain(said.headline)}**", unfinished, _plain(said.explanation)]


def _subject(page: FirstPage) -> str:
    lines = [f"{name}: {text}" for name, text in page.subject]
    return _list([*lines, *(f"{name}: SHA-256 `{digest}`" for name, digest in page.files)])


def _adversary(summary: Summary, order: Sequence[Bracket]) -> list[str]:
    if not order:
        return []
    worst = next(one for one in summary.settings if one.name == order[0].setting)
    which = f"What the adversary had in “{_plain(worst.name)}”: "
    return [which + _plain(" ".join(worst.threat))] if worst.threat else []


def _table(page: FirstPage) -> str:
    head = ("Setting", "Attacks that ran", "Attacks reached", "Blind guess", "Proven limit")
    lines = [f"| {' | '.join((*head, 'Rebuilt'))} |", "|---|---:|---:|---:|---:|---|"]
    for one in page.outcomes:
        cells = (one.name, one.ran, one.reached, one.blind, one.ceiling, one.rebuilt)
        lines.append(f"| {' | '.join(map(_plain, cells))} |")
    if page.more:
        lines += ["", f"{counted(page.more, 'more setting')}: see `summary.json`."]
    return "\n".join(lines)


def _list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {_plain(line)}" for line in lines)


def _plain(text: str) -> str:
    """Escape what Markdown or HTML would read as markup; hashes stay in their backticks."""
    for mark in ("\\", "<", "|", "*", "_", "[", "]"):
        text = text.replace(mark, f"\\{mark}")
    return text.replace("\n", " ")


def _joined(parts: Sequence[str]) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"
