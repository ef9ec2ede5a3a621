"""``exhume bound floor`` and ``rates``: numbers, words, JSON, errors."""

import json
import math

import pytest
from rich.cells import cell_len
from typer.testing import CliRunner

from exhume.cli.bound import app
from exhume.protocol.errors import InputError


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    runner = CliRunner()

    def call(*arguments):
        result = runner.invoke(app, list(arguments))
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        if "--json" not in arguments:
            assert all(cell_len(line) <= 80 for line in result.output.splitlines())
        return result

    return call


def test_renyi_in_words(run):
    output = run("floor", "--rdp-order-2", "1").output
    assert "0.1455" in output  # .25 / (e - 1)
    assert "0.3814" in output  # its root
    assert "unbiased attacks only" in output
    assert "give --dimension" in output


def test_dp_sgd_gives_both_kinds(run):
    arguments = ["floor", "--noise-multiplier", "2", "--steps", "8", "--dimension", "10"]
    output = run(*arguments).output
    assert "unbiased attacks only" in output
    assert "all attacks" in output
    unbiased, every = json.loads(run(*arguments, "--json").output)["floors"]
    # ε₂ = 4·8/4 = 8; ρ = 8/(2·4) = 1 nat over 10 uniform coordinates.
    assert unbiased["value"] == pytest.approx(0.25 / math.expm1(8))
    assert unbiased["binds"] == "unbiased attacks only"
    assert every["value"] == pytest.approx(math.exp(-0.2) / (2 * math.pi * math.e))
    assert every["binds"] == "all attacks"
    assert every["unit"] == "mean squared error per coordinate"


def test_sampling_and_the_range_count(run):
    def value(*more):
        arguments = ["floor", "--noise-multiplier", "1", "--steps", "10", "--json", *more]
        return json.loads(run(*arguments).output)["floors"][0]["value"]

    assert value("--sample-rate", "0.1") > value()
    assert value("--range", "-1", "1") == pytest.approx(4 * value())


def test_fisher_and_information_with_a_gaussian_prior(run):
    output = run(
        *["floor", "--fisher", "4", "--information", "3", "--dimension", "6"],
        *["--prior-std", "0.5", "--json"],
    ).output
    fisher, entropy = json.loads(output)["floors"]
    assert fisher["value"] == 0.25
    assert entropy["value"] == pytest.approx(0.25 * math.exp(-1))


def test_an_infinite_floor(run):
    output = run("floor", "--rdp-order-2", "0").output
    assert "inf" in output
    assert "no unbiased attack exists" in output
    (floor,) = json.loads(run("floor", "--rdp-order-2", "0", "--json").output)["floors"]
    assert floor["value"] is None
    assert floor["infinite"] is True


def test_rates_in_words(run):
    output = run(
        *["rates", "--dimension", "256", "--width", "4096", "--batch", "4"],
        *["--noise", "2", "--drop", "0.75", "--pruned-share", "0"],
    ).output
    lines = {line.split("  ")[0]: line.split() for line in output.splitlines() if line}
    assert lines["none"][1:5] == ["1", "1", "0.25", "1"]
    assert lines["gradient noise"][2:6] == ["1.5", "1.5", "0.559", "2.236"]
    assert lines["dropout"][1:5] == ["2", "2", "0.5", "2"]
    assert lines["gradient pruning"][2:6] == ["–", "–", "0.25", "1"]
    assert "up to constants" in output
    assert "unbiased attacks only" in output
    # Half of the units would do for no defence; a quarter is too few.
    assert "Not proven here (dropout): the upper rate needs width" in output


def test_rates_as_json(run):
    output = run("rates", "--dimension", "64", "--width", "4096", "--batch", "4", "--json").output
    rows = json.loads(output)["rates"]
    assert len(rows) == 8
    assert rows[0]["upper"] == 0.5
    assert rows[0]["violated"] == ["batch⁴ ≤ dimension (256 > 64)"]
    assert rows[-1]["upper"] is None
    assert all(row["lower_binds"] == "unbiased attacks only" for row in rows)
    assert all(row["up_to_a_constant"] for row in rows)


def test_rates_without_observation_noise(run):
    output = run("rates", "--dimension", "64", "--width", "4096", "--observation-noise", "0").output
    (row,) = (line for line in output.splitlines() if line.startswith("none"))
    assert row.split()[1:5] == ["0.125", "1", "0", "–"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["floor"], "give what is known"),
        (["floor", "--steps", "5"], "--noise-multiplier"),
        (["floor", "--rdp-order-2", "-1"], "--rdp-order-2"),
        (["floor", "--rdp-order-2", "nan"], "--rdp-order-2"),
        (["floor", "--fisher", "nan"], "--fisher"),
        (["floor", "--information", "1"], "--dimension"),
        (["floor", "--information", "-1", "--dimension", "3"], "information"),
        (["floor", "--information", "1", "--dimension", "0"], "--dimension"),
        (["floor", "--information", "1", "--dimension", "3", "--prior-std", "0"], "--prior-std"),
        (["floor", "--rdp-order-2", "1", "--range", "1", "0"], "low < high"),
        (["floor", "--rdp-order-2", "1", "--range", "0", "nan"], "low < high"),
        (["floor", "--noise-multiplier", "-1"], "--noise-multiplier"),
        (["floor", "--noise-multiplier", "nan"], "--noise-multiplier"),
        (["floor", "--noise-multiplier", "1", "--sample-rate", "2"], "--sample-rate"),
        (["floor", "--noise-multiplier", "1", "--steps", "0"], "--steps"),
        (["rates", "--dimension", "0", "--width", "1"], "dimension"),
        (["rates", "--dimension", "1", "--width", "1", "--drop", "1"], "drop"),
        (["rates", "--dimension", "1", "--width", "1", "--noise", "nan"], "noise"),
    ],
)
def test_errors_are_one_line_that_names_the_value(run, arguments, message):
    with pytest.raises(InputError, match=message) as error:
        run(*arguments)
    assert "\n" not in str(error.value)
