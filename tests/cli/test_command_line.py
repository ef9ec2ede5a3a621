"""The command line itself: how it is started, completed and misspelled."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.cli.command import EXHUME, invoke

from exhume.protocol.version import __version__


def output(*command: str, environment: Mapping[str, str] | None = None) -> str:
    found = subprocess.run(
        command,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=True,
    )
    return found.stdout


def test_as_a_module() -> None:
    assert output(sys.executable, "-m", "exhume", "--version") == f"exhume {__version__}\n"


class TestCompletion:
    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_a_script_for_each_shell(self, shell: str) -> None:
        script = invoke("completion", shell).out
        assert f"_EXHUME_COMPLETE=complete_{shell}" in script
        assert "exhume" in script

    def test_another_shell_is_refused(self) -> None:
        assert invoke("completion", "tcsh").code == 2

    @pytest.mark.parametrize(
        ("line", "word", "answers"),
        [
            ("exhume au", 1, {"audit"}),
            ("exhume bound r", 2, {"rero", "rates"}),
            ("exhume audit --pl", 2, {"--plan"}),
            ("exhume audit --executor s", 3, {"serial"}),
        ],
    )
    def test_what_bash_is_answered(self, line: str, word: int, answers: set[str]) -> None:
        asked = {"COMP_WORDS": line, "COMP_CWORD": str(word), "_EXHUME_COMPLETE": "complete_bash"}
        assert set(output(*EXHUME, environment=asked).split()) == answers

    @pytest.mark.parametrize("shell", ["zsh", "fish"])
    def test_what_other_shells_are_answered(self, shell: str) -> None:
        asked = {
            "_TYPER_COMPLETE_ARGS": "exhume audit --pl",
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
            "_EXHUME_COMPLETE": f"complete_{shell}",
        }
        assert "--plan" in output(*EXHUME, environment=asked)

    def test_bash_itself_completes(self, tmp_path: Path) -> None:
        """The script is sourced by a real bash, and the function that it binds is called."""
        (tmp_path / "exhume").write_text(
            f'#!/bin/sh\nexec {sys.executable} -m exhume "$@"\n', encoding="utf-8"
        )
        (tmp_path / "exhume").chmod(0o755)
        (tmp_path / "script").write_text(invoke("completion", "bash").out, encoding="utf-8")
        asked = (
            f"source {tmp_path}/script; COMP_WORDS=(exhume bound ra); COMP_CWORD=2; "
            '_exhume_completion exhume; echo "${COMPREPLY[@]}"'
        )
        path = f"{tmp_path}:{os.environ['PATH']}"
        assert output("bash", "-c", asked, environment={"PATH": path}).strip() == "rates"


class TestHelp:
    @pytest.mark.parametrize("command", [("audit",), ("study",), ("bound", "rates"), ("data",)])
    def test_flags_take_no_value(self, command: tuple[str, ...]) -> None:
        text = invoke(*command, "--help").out
        assert "bool" not in text.lower()
        assert f"Usage: exhume {' '.join(command)}" in text

    @pytest.mark.parametrize(
        ("arguments", "meant"),
        [(("audt",), "audit"), (("audit", "--plann"), "--plan"), (("bound", "rate"), "rates")],
    )
    def test_what_was_meant(self, arguments: tuple[str, ...], meant: str) -> None:
        found = invoke(*arguments)
        assert found.code == 2
        assert meant in found.err


class TestBounds:
    def test_what_is_missing_is_named(self) -> None:
        assert invoke("bound", "kappa").error.startswith(
            "the success of a blind guess is missing: give --prior with its options (gaussian, "
        )
        assert (
            "missing: give --kappa, or --prior"
            in invoke("bound", "rero", "--solve-for", "noise-multiplier").error
        )

    def test_what_was_meant(self) -> None:
        found = invoke("bound", "kappa", "--prior", "gausian", "--eta", "1")
        assert found.error == "there is no prior called 'gausian'; did you mean 'gaussian'?"

    @pytest.mark.parametrize("steps", ["99999999999999999999", "1" + "0" * 400])
    @pytest.mark.parametrize("command", [("rero", "--kappa", "0.1"), ("floor",)])
    def test_more_steps_than_any_training_has(self, command: tuple[str, ...], steps: str) -> None:
        found = invoke("bound", *command, "--noise-multiplier", "1", "--steps", steps)
        assert f"steps must be at most 1,000,000,000,000, got {steps}" in found.error

    def test_as_many_steps_as_a_training_may_have(self) -> None:
        options = ("--noise-multiplier", "1e6", "--steps", "1000000000000", "--kappa", "0.1")
        assert invoke("bound", "rero", *options).code == 0

    def test_rates_only_of_defences_whose_strength_is_given(self) -> None:
        size = ("bound", "rates", "--dimension", "64", "--width", "100")
        rows = [line.split("  ")[0] for line in invoke(*size).out.splitlines()[1:3]]
        assert rows == ["none", "local aggregation"]
        lines = invoke(*size, "--drop", "0.5").out
        assert "\ndropout" in lines
        assert "\ngradient noise" not in lines
        assert "Not shown, as no strength is given: gradient noise (--noise)," in lines


def test_a_data_folder_that_is_not_there(tmp_path: Path) -> None:
    found = invoke("data", "--folder", tmp_path / "nope")
    assert found.error == f"data folder '{tmp_path}/nope' does not exist or is not a folder"
    assert found.out == ""
