"""The user's page about floors shows what really comes out."""

import contextlib
import io
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

PAGE = Path(__file__).parents[3] / "docs/explanation/floors.md"
BLOCKS = re.findall(r"```(?:python)?\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
COMMANDS = [block for block in BLOCKS if block.startswith("$ exhume bound ")]


def test_python_blocks_print_what_the_page_says():
    names: dict[str, object] = {}
    shown = []
    for block in BLOCKS:
        if block.startswith("$"):
            continue
        expected = re.findall(r"^#> (.*)$", block, re.MULTILINE)
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(block, names)
        assert output.getvalue().splitlines() == expected
        shown += expected
    assert len(shown) >= 10


@pytest.mark.parametrize("block", COMMANDS, ids=[c.split("\n")[0] for c in COMMANDS])
def test_commands_print_what_the_page_says(block, monkeypatch):
    from exhume.cli.bound import app

    monkeypatch.setenv("COLUMNS", "80")
    command, _, expected = block.partition("\n")
    result = CliRunner().invoke(app, command.removeprefix("$ exhume bound ").split())
    assert result.exit_code == 0
    assert [line.rstrip() for line in result.output.splitlines()] == expected.splitlines()


def test_the_page_has_both_commands():
    assert {command.split()[3] for command in COMMANDS} == {"floor", "rates"}
