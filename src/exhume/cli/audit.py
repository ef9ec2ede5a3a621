"""``exhume audit``: run an audit, or go on with one that was interrupted."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exhume.cli.running import (
    Address,
    Budget,
    Crew,
    Executor,
    Out,
    PlanOnly,
    Quiet,
    Redact,
    Workers,
    carry_out,
)

if TYPE_CHECKING:
    from exhume.audit import Bracket, Summary
    from exhume.config import Config

_LONG_NAME = 26
"""Characters of a setting's name that fit a line of 80 beside its numbers."""


def audit(
    file: Annotated[
        Path | None, typer.Argument(help="The audit's TOML file; else the embedded example.")
    ] = None,
    out: Out = Path("exhume-run"),
    executor: Executor = None,
    workers: Workers = 0,
    address: Address = None,
    plan_only: PlanOnly = False,
    budget: Budget = None,
    redact: Redact = False,
    trust_code: Annotated[
        bool,
        typer.Option(
            "--trust-code", help="Import the models that the file names as package.module:function."
        ),
    ] = False,
    quiet: Quiet = False,
    show_example: Annotated[
        bool, typer.Option("--show-example", help="Print the embedded example's TOML and stop.")
    ] = False,
) -> None:
    """Attack a release, bound what any attack could do, and write a report.

    Ctrl-C stops it; the same command goes on where it stopped.
    """
    if show_example:
        typer.echo(example_text(), nl=False)
        return
    from exhume.audit import make_plan

    config = _config(file)
    _admit_code(config, file, trusted=trust_code)
    done = carry_out(
        make_plan(config),
        out,
        Crew(executor, workers, address),
        plan_only=plan_only,
        budget=budget,
        redact=redact,
        quiet=quiet,
    )
    if done is not None:
        show(done.summary)
        typer.echo(f"report: {done.report}")


def example_text() -> str:
    """Return the embedded example's TOML."""
    from importlib.resources import files

    return files("exhume").joinpath("example.toml").read_text(encoding="utf-8")


def _config(file: Path | None) -> Config:
    from exhume.config import load, parse

    if file is None:
        return parse(example_text(), folder=Path(), source="the embedded example")
    return load(file)


def _admit_code(config: Config, file: Path | None, *, trusted: bool) -> None:
    """Refuse models that are code unless they are trusted; look for them beside the file."""
    from exhume.config import NetworkReleaseTable
    from exhume.errors import InputError

    releases = [setting.release for setting in config.setting]
    foreign = [r.model for r in releases if isinstance(r, NetworkReleaseTable) and r.foreign]
    if not foreign:
        return
    if not trusted:
        raise InputError(
            f"{file}: the model {foreign[0]!r} is code that would be run; "
            "give --trust-code if you trust it"
        )
    if file is not None:
        sys.path.insert(0, str(file.resolve().parent))


def show(summary: Summary) -> None:
    """Print the bracket of every setting."""
    from rich.console import Console
    from rich.table import Table

    from exhume.audit.verdicts import brief

    table = Table(box=None, padding=(0, 1), title_justify="left")
    for heading in ("setting", "strongest attack", "reached", "blind", "at most"):
        table.add_column(heading, justify="left" if "e a" in heading or "g" in heading else "right")
    for name, bracket in zip(_names(summary), summary.brackets, strict=True):
        table.add_row(name, *_cells(bracket))
    console = Console(highlight=False)
    console.print(table)
    for one in summary.left_out:
        text = f"left out to fit {summary.budget}: {one.setting} was run on {one.run} of {one.of}"
        console.print(f"{text} targets", soft_wrap=True)
    console.print(f"reached: targets rebuilt {_within(summary.closeness)}", style="dim")
    for tradeoff in summary.tradeoffs:
        if (tradeoff.metric, tradeoff.measure) == ("rmse", "accuracy"):
            for text in tradeoff.describe():
                console.print(text, soft_wrap=True)
    for facts in summary.settings:
        if facts.get("authenticity"):
            console.print(f"{facts['name']}: {brief(facts['authenticity'])}", soft_wrap=True)


def _within(closeness: float) -> str:
    if closeness == 1.0:
        return "closer than any record the adversary had, with interval"
    return f"within {closeness:g} × the distance to the nearest known record"


def _names(summary: Summary) -> list[str]:
    """Name each setting; a grid's by their defences alone, below its own, where they'd be long."""
    names = [bracket.setting for bracket in summary.brackets]
    if max(map(len, names), default=0) <= _LONG_NAME:
        return names
    own = {facts["name"]: facts.get("defence") for facts in summary.settings}
    return [f"  {own[name]}" if own.get(name) else name for name in names]


def _cells(bracket: Bracket) -> tuple[str, ...]:
    blind = bracket.blind
    return (
        bracket.attack or "",
        _reached(bracket),
        "" if blind is None else f"{blind.rate:.0%}",
        "no bound" if bracket.ceiling is None else f"{bracket.ceiling:.0%}",
    )


def _reached(bracket: Bracket) -> str:
    reached = bracket.reached
    if reached is not None:
        return f"{reached.rate:.0%} [{reached.low:.0%}–{reached.high:.0%}]"
    # Without the truth attacks run, but nobody can say how close they came.
    return "no truth" if bracket.unanswered < bracket.targets else "none ran"
