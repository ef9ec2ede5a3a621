"""Help: at once, for every command, and readable in an 80-column terminal."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from unicodedata import combining, east_asian_width

import pytest
from tests.audit import small
from tests.cli.command import invoke
from typer.main import get_command

import exhume
from exhume.audit import make_plan
from exhume.cli.main import app
from exhume.config import parse


def _paths(command: object, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every command there is, with those that later ones add."""
    below = getattr(command, "commands", {})
    return [path, *(p for name, c in below.items() for p in _paths(c, (*path, name)))]


COMMANDS = _paths(get_command(app))


def _width(line: str) -> int:
    return sum(2 if east_asian_width(c) in "WF" else not combining(c) for c in line)


def test_help_loads_nothing_heavy() -> None:
    """What makes an answer quick on any machine: the libraries that take seconds stay out."""
    heavy = "torch sklearn scipy matplotlib pandas ray opacus dp_accounting"
    code = (
        "import sys\nfrom exhume.cli.main import app\n"
        "try:\n    app(['--help'])\n"
        f"except SystemExit as end:\n    print(end.code, set(sys.modules) & set('{heavy}'.split()))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1] == "0 set()"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: " ".join(c) or "exhume")
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_every_command_has_help(
    command: tuple[str, ...], flag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    found = invoke(*command, flag)
    assert (found.code, found.err) == (0, "")
    assert "Usage" in found.out
    assert [line for line in found.out.splitlines() if _width(line) > 80] == []


def test_every_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    overview = invoke("--help").out
    assert len(COMMANDS) >= 9
    for name in ("audit", "report", "gate", "bound", "list", "data"):
        assert f" {name} " in overview


def test_list_fits_and_names_what_a_file_can_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    found = invoke("list")
    assert found.code == 0
    assert [line for line in found.out.splitlines() if _width(line) > 80] == []
    for name in ("glm", "scaler-moments", "oblivious", "rounding", "output-perturbation"):
        assert name in found.out
    for name in ("logistic", "ridge", "rmse", "ssim", "breast-cancer", "fashion-mnist-small"):
        assert name in found.out


class TestList:
    def test_no_word_is_lost_in_a_line_for_each_group(self) -> None:
        text = invoke("list").out
        assert len(text.splitlines()) < 50
        listed = json.loads(invoke("list", "--json").out)
        words = set(text.replace(",", " ").split())
        assert {one["name"] for one in listed} <= words

    def test_a_word_describes_what_it_names(self) -> None:
        rows = [line.split()[:2] for line in invoke("list", "clip").out.splitlines()]
        assert ["defence", "record-clipping"] in rows
        assert ["defence", "clipping"] in rows
        assert "own gradient down to norm" in invoke("list", "record-clipping").out
        # Nothing is named so, but a description has it.
        assert "output-perturbation" in invoke("list", "sensitivity").out

    def test_american_spelling(self) -> None:
        assert invoke("list", "defenses").out == invoke("list", "defences").out

    def test_by_release(self) -> None:
        gradient = json.loads(invoke("list", "attacks", "--release", "gradient", "--json").out)
        names = {one["name"] for one in gradient}
        assert {"geiping", "oblivious"} <= names
        assert names.isdisjoint({"glm", "kkt", "trajectory-inversion"})
        weights = json.loads(invoke("list", "defences", "--release", "weights", "--json").out)
        assert {one["name"] for one in weights} == {"output-perturbation", "noise", "rounding"}

    def test_nothing_of_that_name(self) -> None:
        found = invoke("list", "geping")
        assert found.error == "there is no name or group called 'geping'; did you mean 'geiping'?"


def test_an_audit_as_json(tmp_path: Path) -> None:
    (tmp_path / "audit.toml").write_text(small.PLAIN + small.audit(2))
    options = ("--out", tmp_path / "run", "--workers", "1", "--quiet", "--json")
    found = invoke("audit", tmp_path / "audit.toml", *options)
    assert json.loads(found.out) == json.loads((tmp_path / "run" / "summary.json").read_text())


def test_data_fits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    found = invoke("data", "--folder", tmp_path)
    assert found.code == 0
    assert [line for line in found.out.splitlines() if _width(line) > 80] == []


def test_an_audits_table_fits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    name = "a name as long as it may be, which is sixty characters: 1234"
    assert len(name) == 60
    Path("audit.toml").write_text(small.PLAIN.replace("plain", name) + small.audit(2))
    found = invoke("audit", "audit.toml", "--out", "run", "--workers", "1", "--quiet")
    assert (found.code, found.err) == (0, "")
    assert [line for line in found.out.splitlines() if _width(line) > 80] == []
    assert "100% [16%–100%]" in found.out


@pytest.mark.parametrize("arguments", [("nonsense",), ("audit", "--nonsense"), ("gate",)])
def test_wrong_usage_exits_2(arguments: tuple[str, ...]) -> None:
    found = invoke(*arguments)
    assert found.code == 2
    assert "Traceback" not in found.err


def test_version() -> None:
    assert invoke("--version").out.strip() == f"exhume {exhume.__version__}"


def test_the_example_is_a_valid_audit() -> None:
    text = invoke("audit", "--show-example").out
    config = parse(text, folder=Path(), source="example")
    assert len(config.setting) >= 5
    assert make_plan(config).units()


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("report", "run", "--format", "htm"), "Did you mean 'html'?"),
        (("list", "--release", "gradiant"), "Did you mean 'gradient'?"),
        (("completion", "zhs"), "Did you mean 'zsh'?"),
        (("report", "run", "--format", "spreadsheet"), "'model-card'."),
    ],
)
def test_a_choice_that_does_not_exist_is_answered_with_the_one_meant(
    arguments: tuple[str, ...], meant: str
) -> None:
    found = invoke(*arguments)
    said = " ".join(found.err.replace("│", " ").split())
    assert found.code == 2
    assert said.startswith("Usage: exhume")
    assert meant in said
    assert "Value error" not in said


def test_paragraphs_of_the_help_are_wrapped_to_the_terminal() -> None:
    """Not where the source breaks its lines."""
    said = [line.rstrip() for line in invoke("gate", "--help").out.splitlines()]
    start = next(i for i, line in enumerate(said) if line.startswith(" A setting passes if"))
    paragraph = said[start : said.index("", start)]
    assert len(paragraph) >= 2
    width = max(map(len, said))
    for line, after in pairwise(paragraph):
        assert len(line) + 1 + len(after.split()[0]) > width - 2, line


def test_a_file_that_is_no_text_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_bytes(b"\xff\xfe\x00")
    assert "it is not text in UTF-8" in invoke("audit", tmp_path / "a.toml").error
