"""``exhume init``: write an audit's file for the contents of a folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exhume.protocol.errors import InputError
from exhume.protocol.names import no_such

if TYPE_CHECKING:
    from exhume.cli.starter import StarterAnswers


def init(
    folder: Annotated[Path, typer.Argument(help="Where the model and the records are.")] = Path(),
    model: Annotated[
        Path | None,
        typer.Option(
            help="The file of the released model: .safetensors, .pt, .skops.", metavar="FILE"
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="The file of records: .csv or .npz.", metavar="FILE")
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="The label's column of a .csv table.", metavar="COLUMN")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(help="The model, such as logistic, mlp, or package.module:function."),
    ] = None,
    train: Annotated[
        bool, typer.Option("--train", help="Ignore model files: train on the records instead.")
    ] = False,
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("audit.toml"),
) -> None:
    """Write a commented audit.toml for the model and the data in a folder.

    Asks for what no option says: which model, which records, which label, which kind of model.
    Without a terminal, it takes what it finds first.
    """
    from exhume.cli.starter import starter
    from exhume.config import parse

    if out.exists():
        raise InputError(f"{out} exists: choose another --out, or remove it")
    released, records = _files(folder, model, data, train=train)
    answers = _answers(released, records, label, kind, out)
    text = starter(answers, out.name)
    parse(text, folder=out.parent, source="these answers make no audit")
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{out} can't be written: {error.strerror}") from None
    typer.echo(f"written: {out}; check its values, then run: exhume audit {out}")


def _files(
    folder: Path, model: Path | None, data: Path | None, *, train: bool
) -> tuple[Path | None, Path | None]:
    """Return the files of the model and the records: those named, or else those found."""
    from exhume.cli.starter import CHECKPOINTS, ESTIMATORS, TABLES, files_in

    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}")
    if model is not None and train:
        raise InputError("give either --model or --train: with a model, nothing is trained")
    if model is None and not train:
        found = files_in(folder, (*CHECKPOINTS, *ESTIMATORS))
        model = _file("Which model is released", found, "none: train on the records")
    if data is None:
        data = _file("Which file holds the records", files_in(folder, TABLES), "none")
    for path in (model, data):
        if path is not None and not path.is_file():
            raise InputError(f"there is no file {path}")
    return model, data


def _answers(
    released: Path | None, data: Path | None, label: str | None, kind: str | None, out: Path
) -> StarterAnswers:
    """Return the answers still needed, and the files as seen from the folder of ``out``."""
    from exhume.cli.starter import (
        ESTIMATORS,
        MIXED,
        StarterAnswers,
        columns_of,
        has_text,
        hidden_layers,
        holds,
        likely_model,
    )

    columns = [] if data is None else columns_of(data)
    if columns and label is None:
        label = _asked("Which column is the label", columns[-1])
    _require_column(label, columns, data, released)
    if released is not None and released.suffix in ESTIMATORS:
        # The file says what it is.
        kind = released.name
    mixed = released is None and has_text(data, label)
    if kind is None:
        likely = MIXED if mixed else likely_model(released, data, label)
        kind = _asked("Which kind of model is it", likely)
    if mixed and ":" not in kind:
        raise InputError(
            f"{data} has cells that are no numbers: only a pipeline reads them; give --kind "
            f"package.module:function that returns one, got {kind!r}"
        )
    hidden = None if released is None else hidden_layers(released)
    scaler = released is not None and holds(released, "scaler.mean")
    files = (_from(out, released), _from(out, data))
    return StarterAnswers(*files, label, kind, hidden, scaler, mixed)


def _require_column(
    label: str | None, columns: list[str], data: Path | None, released: Path | None
) -> None:
    from exhume.cli.starter import ESTIMATORS

    if label is None:
        return
    if not columns:
        raise InputError("--label names a column of a .csv file; there is none")
    if label not in columns:
        raise InputError(f"{data}: {no_such('column', label, columns)}")
    if released is not None and released.suffix not in ESTIMATORS and label != columns[-1]:
        raise InputError(
            f"{data}: in records that go with a released model, the label is the last column; "
            f"move {label!r} there, or save x and y as .npz"
        )


def _from(out: Path, path: Path | None) -> Path | None:
    """Return a path as the written file has it: from its own folder."""
    if path is None:
        return None
    return Path(os.path.relpath(path.resolve(), out.resolve().parent))


def _file(question: str, found: list[Path], otherwise: str) -> Path | None:
    """Ask for one of the files found; without a terminal, take the first."""
    if not found:
        return None
    if sys.stdin.isatty():
        typer.echo(f"found: {', '.join(map(str, found))}", err=True)
    answer = _asked(f"{question} ({otherwise})", str(found[0]))
    return None if answer == "none" else Path(answer)


def _asked(question: str, default: str) -> str:
    if not sys.stdin.isatty():
        return default
    return str(typer.prompt(f"{question}?", default=default, err=True)).strip()
