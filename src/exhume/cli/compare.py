"""``exhume compare``: two runs side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exhume.cli.running import Json
from exhume.protocol.errors import InputError

if TYPE_CHECKING:
    from exhume.runlog.comparison import Change, RunComparison
    from exhume.runlog.summary import Rate, Summary


def compare(
    before: Annotated[Path, typer.Argument(help="The run folder to compare with.")],
    after: Annotated[Path, typer.Argument(help="The run folder that is compared.")],
    as_json: Json = False,
) -> None:
    """Compare two runs, such as before and after a defence, or two versions of a model.

    Settings of the same name are compared; of two runs with one setting each, those two. The
    change of what attacks reached has a 95 % interval; "undecided" means that it contains zero.
    """
    from exhume.runlog.codec import encoded, finite
    from exhume.runlog.comparison import compare as compared

    first, second = _summary(before), _summary(after)
    if first.closeness != second.closeness:
        raise InputError(
            f"{before} counts a target as rebuilt at closeness {first.closeness:g}, {after} at "
            f"{second.closeness:g}: their rates cannot be compared"
        )
    found = compared(first, second)
    if not found.changes:
        raise InputError(
            f"{before} and {after} have no setting in common: {', '.join(found.only_before)} there,"
            f" {', '.join(found.only_after)} here"
        )
    if as_json:
        plain = finite(encoded(found))
        for entry, change in zip(plain["changes"], found.changes, strict=True):
            entry["verdict"] = change.verdict
        typer.echo(json.dumps(plain, indent=1, sort_keys=True, ensure_ascii=False))
    else:
        _print(found, before, after)


def _summary(folder: Path) -> Summary:
    from exhume.audit import Store, summarise

    with Store.open(folder) as store:
        summary = summarise(store.run())
    if not summary.complete:
        typer.echo(f"{folder} is unfinished: its rates are provisional", err=True)
    return summary


def _print(found: RunComparison, before: Path, after: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, padding=(0, 1))
    table.add_column("setting")
    for heading in ("before", "after", "change with interval", "proven limit"):
        table.add_column(heading, justify="right")
    table.add_column("verdict")
    for change in found.changes:
        table.add_row(change.setting, *_cells(change))
    console = Console(highlight=False)
    console.print(table)
    for folder, names in ((before, found.only_before), (after, found.only_after)):
        if names:
            console.print(f"only in {folder}: {', '.join(names)}", soft_wrap=True)
    for change in found.changes:
        if change.model_before is not None and change.model_after is not None:
            figures = f"{change.model_before:.3f} → {change.model_after:.3f}"
            console.print(f"{change.setting}: {change.model} {figures}", soft_wrap=True)


def _cells(change: Change) -> tuple[str, ...]:
    moved = "–"
    if change.change is not None and change.low is not None and change.high is not None:
        moved = f"{change.change:+.0%} [{change.low:+.0%}, {change.high:+.0%}]"
    limits = f"{_limit(change.limit_before)} → {_limit(change.limit_after)}"
    return _rate(change.before), _rate(change.after), moved, limits, change.verdict


def _rate(rate: Rate | None) -> str:
    return "not known" if rate is None else f"{rate.rate:.0%}"


def _limit(ceiling: float | None) -> str:
    return "none" if ceiling is None or ceiling >= 1.0 else f"{ceiling:.0%}"
