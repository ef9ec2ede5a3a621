"""The page about the gate shows what really comes out."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from tests.cli.command import Finished, invoke

from exhume.metrics import clopper_pearson

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "gate.md").read_text(encoding="utf-8")
CONSOLE = "".join(re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL))


def _rounded(lines: list[str]) -> list[str]:
    """Long decimals to six digits: the last ones are the machine's."""
    return [re.sub(r"\d\.\d{7,}", lambda m: f"{float(m[0]):.6g}", line) for line in lines]


@pytest.mark.slow
def test_the_page_shows_what_comes_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    (toml,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    Path("release.toml").write_text(toml)
    last, seen = Finished(0, "", ""), 0
    for command, expected in re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", CONSOLE, re.MULTILINE):
        if command == "echo $?":
            shown = [str(last.code)]
        else:
            program, *arguments = shlex.split(command)
            assert program == "exhume"
            last = invoke(*arguments)
            shown = [line.rstrip() for line in last.out.splitlines()]
        assert _rounded(shown) == _rounded(expected.splitlines()), command
        seen += 1
    assert seen == 5


def test_how_many_targets_it_takes() -> None:
    """The numbers of targets that the page names, none of them rebuilt."""
    assert round(clopper_pearson(0, 60).high, 3) == 0.060
    assert clopper_pearson(0, 72).high < 0.05 < clopper_pearson(0, 71).high
    assert clopper_pearson(0, 368).high < 0.01 < clopper_pearson(0, 367).high
