"""Pages of the documentation, taken apart into blocks, and a session that runs them in order.

Blocks are run by their language: ``python`` (its ``#> `` lines are what it prints), ``toml`` (its
first line names the file it is saved as), ``console`` (``$ exhume …`` and ``$ echo $?``, each with
the output below it; a line ``…`` stands for any lines). Blocks in ``sh`` are for a machine that has
nothing yet, and are not run.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).parents[2]
WIDTH = 80


@dataclass(frozen=True)
class Block:
    """One fenced block, and the line of the page that its text starts on."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Command:
    """One line typed at a prompt, and what the page says comes back."""

    line: str
    output: tuple[str, ...]


def blocks(page: str) -> list[Block]:
    """Return a page's fenced blocks in order; ``page`` is relative to the repository."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [
        Block(page, text.count("\n", 0, match.start(2)) + 1, match[1], match[2]) for match in found
    ]


def commands(block: Block) -> list[Command]:
    """Return what is typed in a console block, with what is shown below each line."""
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    assert parts[0] == "", f"{block}: output before the first command"
    typed = [part.splitlines() for part in parts[1:]]
    return [Command(lines[0], tuple(line.rstrip() for line in lines[1:])) for lines in typed]


class Session:
    """A reader who works through a page in an empty folder."""

    def __init__(self) -> None:
        self._names: dict[str, object] = {"__name__": "page"}
        self._exit_code = 0

    def run(self, block: Block) -> None:
        """Do what a block says, and hold its output against what the page shows."""
        match block.language:
            case "python":
                self._python(block)
            case "toml":
                self._toml(block)
            case "console":
                for command in commands(block):
                    self._command(block, command)
            case "sh":
                pass
            case _:
                raise AssertionError(f"{block}: no such language here: {block.language!r}")

    def _python(self, block: Block) -> None:
        expected = re.findall(r"^#> ?(.*)$", block.text, re.MULTILINE)
        shown = printed(block, self._names)
        assert shown == expected, f"{block} prints {shown}"

    def _toml(self, block: Block) -> None:
        found = re.match(r"# (\S+\.toml)\n", block.text)
        assert found, f"{block}: the first line must name the file, such as '# audit.toml'"
        Path(found[1]).write_text(block.text, encoding="utf-8")

    def _command(self, block: Block, command: Command) -> None:
        words = shlex.split(command.line)
        if words == ["echo", "$?"]:
            shown = [str(self._exit_code)]
        else:
            assert words[0] == "exhume", f"{block}: can't run {command.line!r}"
            self._exit_code, shown = typed(words)
        assert agree(shown, command.output), f"{block}, {command.line}:\n" + "\n".join(shown)


def printed(block: Block, names: dict[str, object]) -> list[str]:
    """Run a Python block with these names, and return the lines it prints."""
    # Newlines in front, so that an error names the line of the page.
    code = compile("\n" * (block.line - 1) + block.text, block.page, "exec", dont_inherit=True)
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(code, names)
    return output.getvalue().splitlines()


def typed(words: list[str]) -> tuple[int, list[str]]:
    """Type a command; return its exit code and the lines on the terminal, progress left out."""
    from exhume.cli import main

    output, errors, code = io.StringIO(), io.StringIO(), 0
    with _terminal(words), contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    said = [line for line in errors.getvalue().splitlines() if line.startswith("error:")]
    return code, [line.rstrip() for line in output.getvalue().splitlines()] + said


@contextlib.contextmanager
def _terminal(words: list[str]) -> Iterator[None]:
    """Eighty columns; one core, so that an audit starts no processes of its own."""
    with (
        mock.patch.object(sys, "argv", words),
        mock.patch.dict(os.environ, {"COLUMNS": str(WIDTH)}),
        mock.patch.object(os, "sched_getaffinity", return_value={0}),
    ):
        yield


def agree(shown: list[str], expected: tuple[str, ...]) -> bool:
    """Tell whether the lines are those expected, ``…`` standing for any number of lines."""
    wanted = "\n".join(_stripped(list(expected)))
    pattern = re.escape(wanted).replace("…", "(?:.*\n)*?.*")
    return re.fullmatch(pattern, "\n".join(_stripped(shown))) is not None


def _stripped(lines: list[str]) -> list[str]:
    """Without empty lines at either end."""
    return "\n".join(lines).strip("\n").split("\n")
