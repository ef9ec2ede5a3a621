"""The page about ceilings: what it shows is what the commands print."""

import doctest
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from exhume import bounds
from exhume.bounds.figure import DELTA, EPSILONS, SAMPLE_RATE, SETTINGS, STEPS
from exhume.cli.bound import app

PAGE = Path(__file__).parents[3] / "docs/explanation/bounds.md"
TEXT = PAGE.read_text(encoding="utf-8")


def _sessions():
    for block in re.findall(r"```console\n(.*?)```", TEXT, flags=re.DOTALL):
        for session in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = session.partition("\n")
            yield pytest.param(command, output, id=command)


def _lines(text):
    return [line.rstrip() for line in text.strip().splitlines()]


@pytest.mark.parametrize(("command", "output"), list(_sessions()))
def test_commands_print_what_the_page_shows(command, output):
    arguments = shlex.split(command)
    assert arguments[:2] == ["exhume", "bound"]
    result = CliRunner().invoke(app, arguments[2:], env={"COLUMNS": "80"})
    assert result.exit_code == 0
    assert _lines(result.output) == _lines(output)


def test_python_examples():
    failures, tried = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    assert tried >= 7
    assert failures == 0


def test_tables_are_the_command_s():
    result = CliRunner().invoke(app, ["table"])
    by_epsilon, by_setting = result.output.strip().split("\n\n")
    assert by_epsilon in TEXT
    assert by_setting in TEXT
    assert len(by_epsilon.splitlines()) == 2 + len(EPSILONS)
    assert len(by_setting.splitlines()) == 2 + len(SETTINGS)
    # A row read back: its noise gives its epsilon, and its ceilings.
    cells = [cell.strip() for cell in by_epsilon.splitlines()[5].split("|")[1:4]]
    epsilon, noise = float(cells[0]), float(cells[1])
    gamma, alone = map(float, cells[2].replace("(", "").replace(")", "").split())
    loss = bounds.privacy_loss(bounds.dp_sgd(noise, SAMPLE_RATE, STEPS))
    assert loss.epsilon(DELTA) == pytest.approx(epsilon, rel=0.02)
    assert gamma == pytest.approx(float(loss.gamma(0.1)), rel=0.01)
    assert alone == pytest.approx(bounds.approximate_dp(epsilon, DELTA, 0.1), rel=5e-3)


def test_what_the_text_says_of_the_tables():
    """The sentences below the table, against its row at ε = 8."""
    row = next(line for line in TEXT.splitlines() if line.startswith("| 8 |"))
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    gammas = [float(cell.split()[0]) for cell in cells[2:6]]
    assert [round(100 * gamma) for gamma in gammas[:3]] == [44, 14, 4]
    assert all(cell.endswith("(1)") for cell in cells[2:5])
    assert gammas[3] < 0.0007
    assert float(cells[7]) == pytest.approx(0.70, abs=0.005)
    assert cells[6] == f"{gammas[1]:.3g}"


def test_figure_is_there():
    for target in re.findall(r"\]\(([^)]+)\)", TEXT):
        assert (PAGE.parent / target).exists()
    assert (PAGE.parents[1] / "figures" / "epsilon-buys.svg").stat().st_size < 60_000
