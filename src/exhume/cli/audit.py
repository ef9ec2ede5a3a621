"""``exhume audit``: run an audit, or resume one that was interrupted."""

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
    Json,
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
        Path | None,
        typer.Argument(
            help="The audit's TOML file, a folder of audits, a recorded training, or a fitted "
            "estimator as .skops with --data. Default: the embedded example."
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="With a .skops file: the table that it was fitted on.")
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="With --data: the label's column. Default: the last.")
    ] = None,
    targets: Annotated[
        int, typer.Option(help="With --data: how many rows are attacked in turn.", min=1)
    ] = 20,
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
            "--trust-code",
            help="Allow models and trainings given as package.module:function to be imported.",
        ),
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
    show_example: Annotated[
        bool, typer.Option("--show-example", help="Print the embedded example's TOML and exit.")
    ] = False,
) -> None:
    """Attack a release, bound the success of every possible attack, and write a report.

    Ctrl-C stops the audit. The same command resumes it.
    """
    if show_example:
        typer.echo(example_text(), nl=False)
        return
    from exhume.audit import make_plan
    from exhume.protocol.errors import InputError

    config = _config(file) if data is None else _of_estimator(file, data, label, targets)
    if data is None and label is not None:
        raise InputError("--label goes with --data: in a TOML file, say data.label")
    _admit_code(config, file, trusted=trust_code)
    done = carry_out(
        make_plan(config),
        out,
        Crew(executor, workers, address),
        plan_only=plan_only,
        budget=budget,
        redact=redact,
        quiet=quiet,
        as_json=as_json,
    )
    if done is not None and as_json:
        typer.echo((out / "summary.json").read_text(encoding="utf-8"), nl=False)
    elif done is not None:
        show(done.summary)
        typer.echo(f"report: {done.report}")


def example_text() -> str:
    """Return the embedded example's TOML."""
    from importlib.resources import files

    return files("exhume").joinpath("example.toml").read_text(encoding="utf-8")


def _config(file: Path | None) -> Config:
    from exhume.config import load, parse
    from exhume.data.recordings import is_recording

    if file is None:
        return parse(example_text(), folder=Path(), source="the embedded example")
    if is_recording(file):
        return _of_recording(file)
    _require_audit(file)
    return load(file)


def _of_recording(folder: Path) -> Config:
    """Return the audit of a recorded training, with its defaults."""
    from exhume.config.reading import from_tables
    from exhume.data.recordings import read_recording

    targets = min(50, max(1, len(read_recording(folder).records) // 2))
    release = {"kind": "transcript", "recording": str(folder.absolute())}
    return from_tables({"release": release, "audit": {"targets": targets}}, source=str(folder))


def _of_estimator(file: Path | None, data: Path, label: str | None, targets: int) -> Config:
    """Return the audit of a fitted estimator with the table that it was fitted on."""
    from exhume.config.reading import from_tables
    from exhume.data.estimator_files import SKOPS, refuse_pickle
    from exhume.protocol.errors import InputError

    if file is None or file.suffix.lower() != SKOPS:
        if file is not None:
            refuse_pickle(file)
        raise InputError(f"--data goes with the {SKOPS} file of a fitted estimator, got {file}")
    table = {"file": str(data.absolute())} | ({} if label is None else {"label": label})
    release = {"estimator": str(file.absolute())}
    setting = {"name": file.stem, "data": table, "release": release}
    return from_tables({"setting": [setting], "audit": {"targets": targets}}, source=str(file))


def _require_audit(file: Path) -> None:
    """Refuse a model or records in place of an audit's file, and say what is missing."""
    from exhume.cli.starter import CHECKPOINTS, TABLES
    from exhume.data.estimator_files import SKOPS, refuse_pickle
    from exhume.protocol.errors import InputError

    refuse_pickle(file)
    if file.suffix == SKOPS:
        raise InputError(
            f"{file} is a fitted estimator; the table that it was fitted on is missing: exhume "
            f"audit {file} --data patients.csv --label COLUMN"
        )
    if file.suffix in TABLES:
        raise InputError(
            f"{file} holds records, and an audit is a TOML file: exhume init --data {file} writes "
            "one to check"
        )
    if file.suffix in CHECKPOINTS:
        raise InputError(
            f"{file} is a model, not an audit's TOML file. Three things are missing:\n"
            '  1. the kind of model: release.model, such as "logistic", "mlp" or\n'
            "     package.module:function\n"
            "  2. what the adversary knows: knowledge.fixed_set, a file with all training\n"
            "     records except the target\n"
            "  3. how it was trained: release.penalty and release.solver, or for a network\n"
            "     knowledge.training (optimiser, learning_rate, epochs)\n"
            f"To write a file with all of them: exhume init --model {file} --data RECORDS"
        )


def _admit_code(config: Config, file: Path | None, *, trusted: bool) -> None:
    """Refuse models and trainings that are code unless trusted; search for them beside the file."""
    from exhume.protocol.errors import InputError

    foreign = [name for setting in config.setting for name in setting.release.to_trust]
    if not foreign:
        return
    if not trusted:
        raise InputError(
            f"{file}: {foreign[0]!r} is code that would be executed; "
            "add --trust-code if you trust it"
        )
    if file is not None:
        sys.path.insert(0, str(file.resolve().parent))


def show(summary: Summary) -> None:
    """Print the bracket of every setting."""
    from rich.console import Console
    from rich.table import Table

    from exhume.runlog.coverage import coverage

    table = Table(box=None, padding=(0, 1), title_justify="left")
    for heading in ("setting", "strongest attack"):
        table.add_column(heading, vertical="bottom")
    for heading in ("attacks\nreached", "blind\nguess", "proven\nlimit"):
        table.add_column(heading, justify="right")
    for name, bracket in zip(_names(summary), summary.brackets, strict=True):
        table.add_row(name, *_cells(bracket))
    console = Console(highlight=False)
    console.print(table)
    for setting in summary.settings:
        if setting.data.rows:
            console.print(f"{setting.name}: {setting.data.rows}", soft_wrap=True)
        rows = [row for row in summary.rows if row.setting == setting.name]
        for sentence in coverage(rows).brief():
            console.print(f"{setting.name}: {sentence}")
    for one in summary.left_out:
        text = f"left out to fit {summary.budget}: {one.setting} was run on {one.run} of {one.of}"
        console.print(f"{text} targets", soft_wrap=True)
    if any(not bracket.candidates for bracket in summary.brackets):
        console.print(f"reached: targets rebuilt {_within(summary.closeness)}", style="dim")
    if any(bracket.candidates for bracket in summary.brackets):
        console.print("reached: targets named among the candidates, with interval", style="dim")
    for tradeoff in summary.tradeoffs:
        if (tradeoff.metric, tradeoff.measure) == ("rmse", "accuracy"):
            for text in tradeoff.describe():
                console.print(text, soft_wrap=True)
    for setting in summary.settings:
        rows = [row for row in summary.rows if row.setting == setting.name]
        if setting.authenticity is not None and coverage(rows).ran:
            console.print(f"{setting.name}: {setting.authenticity.brief()}", soft_wrap=True)


def _within(closeness: float) -> str:
    if closeness == 1.0:
        return "closer than any record the adversary had, with interval"
    return f"within {closeness:g} × the distance to the nearest known record"


def _names(summary: Summary) -> list[str]:
    """Name each setting; in a grid with long names, by the defence alone, below the grid's name."""
    names = [bracket.setting for bracket in summary.brackets]
    if max(map(len, names), default=0) <= _LONG_NAME:
        return names
    own = {setting.name: setting.defence for setting in summary.settings}
    return [f"  {own[name]}" if own.get(name) else name for name in names]


def _cells(bracket: Bracket) -> tuple[str, ...]:
    blind = bracket.blind
    return (
        bracket.attack or "",
        _reached(bracket),
        "" if blind is None else f"{blind.rate:.0%}",
        "none" if bracket.ceiling is None or bracket.ceiling >= 1.0 else f"{bracket.ceiling:.0%}",
    )


def _reached(bracket: Bracket) -> str:
    reached = bracket.reached
    if reached is not None:
        return f"{reached.rate:.0%} [{reached.low:.0%}–{reached.high:.0%}]"
    # Without the truth, attacks run, but their errors cannot be measured.
    return "no truth" if bracket.unanswered < bracket.targets else "none ran"
