"""``exhume doctor``: what is installed, and what this machine has for an audit."""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Annotated

import typer

from exhume.protocol.version import __version__

_NEEDED = re.compile(r"([A-Za-z0-9._-]+)\s*(?:>=\s*([0-9.]+))?.*?(?:extra == [\'\"](\w+)[\'\"])?$")


@dataclass(frozen=True)
class MachineFact:
    """The result of one check; ``sound`` is None if the part is optional and absent."""

    topic: str
    name: str
    value: str
    sound: bool | None = True


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show versions, extras, devices and data: what this machine has for an audit.

    Exit with 0 if everything that audits need is there, 2 if not.
    """
    found = [*_program(), *_packages(), *_machine(), *_data()]
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in found], indent=1, ensure_ascii=False))
    else:
        _show(found)
    if any(one.sound is False for one in found):
        raise typer.Exit(2)


def _program() -> Iterator[MachineFact]:
    yield MachineFact("program", "exhume", __version__)
    enough = sys.version_info >= (3, 11)
    yield MachineFact("program", "Python", platform.python_version(), enough)
    yield MachineFact("program", "system", f"{platform.system()} {platform.machine()}")


def _packages() -> Iterator[MachineFact]:
    """Yield what Exhume needs, then its extras, by what is stated of the installed package."""
    try:
        needed = metadata.requires("exhume") or []
    except metadata.PackageNotFoundError:
        yield MachineFact("packages", "exhume", "not installed: pip install .", sound=False)
        return
    for line in sorted(needed, key=lambda one: "extra ==" in one):
        name, least, extra = _NEEDED.fullmatch(line).groups()  # type: ignore[union-attr]
        if extra == "dev":
            continue
        topic = "packages" if extra is None else "extras"
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            remedy = f"pip install 'exhume[{extra}]'" if extra else "pip install ."
            absent = None if extra else False
            yield MachineFact(topic, name, f"not installed: {remedy}", sound=absent)
            continue
        old = least is not None and _numbers(version) < _numbers(least)
        text = f"{version}, but at least {least} is needed" if old else version
        yield MachineFact(topic, name, text, sound=not old)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+")[0])[:3])


def _machine() -> Iterator[MachineFact]:
    from exhume.runtime.cache import user_cache

    yield MachineFact("machine", "cores", str(len(os.sched_getaffinity(0))))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    yield MachineFact("machine", "memory", f"{memory / 1e9:.1f} GB")
    yield MachineFact("machine", "devices", ", ".join(_devices()))
    kept = user_cache().folder
    where = "not kept (EXHUME_CACHE=off)" if kept is None else str(kept)
    yield MachineFact("machine", "shadow models", where)


def _devices() -> Iterator[str]:
    import torch

    yield "cpu"
    for index in range(torch.cuda.device_count()):
        yield f"cuda:{index} ({torch.cuda.get_device_name(index)})"
    if torch.backends.mps.is_available():
        yield "mps"


def _data() -> Iterator[MachineFact]:
    from exhume.data.survey import survey

    found = survey()
    if found.problem is not None:
        yield MachineFact("data", "folder", found.problem, sound=False)
    for entry in found.entries:
        if entry.problem is not None:
            yield MachineFact("data", entry.name, f"broken: {entry.problem}", sound=False)
    here = [entry.name for entry in found.entries if entry.where is not None]
    missing = [entry.name for entry in found.entries if entry.where is None]
    yield MachineFact("data", "found", ", ".join(here))
    if missing:
        names = ", ".join(missing)
        yield MachineFact(
            "data", "missing", f"{names} (exhume data says how to get them)", sound=None
        )


def _show(found: list[MachineFact]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    marks = {True: Text("✓", "green"), None: Text("–", "yellow"), False: Text("✗", "bold red")}
    table = Table(box=None, padding=(0, 1), show_header=False)
    topic = ""
    for one in found:
        if one.topic != topic:
            table.add_row("", Text(one.topic, "bold"), "")
        topic = one.topic
        table.add_row(marks[one.sound], one.name, Text(one.value))
    Console(highlight=False).print(table)
