"""The GitHub action and the GitLab job: their shell steps are run, as the runners run them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from tests.audit import small
from tests.docs.pages import blocks

ROOT = Path(__file__).parents[1]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
JOB: dict[str, Any] = yaml.safe_load((ROOT / "ci/gitlab.yml").read_text(encoding="utf-8"))
GATE: dict[str, Any] = JOB[".exhume-gate"]
AUDIT = small.NOISY.replace("noise_multiplier = 1.0", "noise_multiplier = 20.0") + small.audit(4)


@dataclass
class Runner:
    """A machine with a checkout of Exhume and a project with an audit; pip installs into it."""

    project: Path
    checkout: Path
    outputs: dict[str, str] = field(default_factory=dict)
    summary: str = ""
    log: str = ""

    def action(self, *only: str, **inputs: str) -> int:
        """Run the composite action's steps, or some; return the exit code of the first to fail."""
        given = {name: one.get("default", "") for name, one in ACTION["inputs"].items()}
        context = {f"inputs.{name}": value for name, value in {**given, **inputs}.items()}
        context["github.action_path"] = str(self.checkout)
        files = {
            "GITHUB_OUTPUT": self.project / "output",
            "GITHUB_STEP_SUMMARY": self.project / "s",
        }
        code = 0
        for step in ACTION["runs"]["steps"]:
            if only and step["name"] not in only:
                continue
            assert step["shell"] == "bash"
            assert "${{" not in step["run"], "an input inside a script would be run as code"
            own = {name: _filled(value, context) for name, value in step["env"].items()}
            code = self._bash(step["run"], {**own, **{n: str(p) for n, p in files.items()}})
            if code:
                break
        found = {name: path.read_text() for name, path in files.items() if path.is_file()}
        pairs = (line.partition("=") for line in found.get("GITHUB_OUTPUT", "").splitlines())
        self.outputs = {name: value for name, _, value in pairs}
        self.summary = found.get("GITHUB_STEP_SUMMARY", "")
        return code

    def gitlab(self, **variables: str) -> int:
        """Run the job's script."""
        own = {**GATE["variables"], **variables}
        return self._bash("\n".join(GATE["script"]), {n: str(v) for n, v in own.items()})

    def _bash(self, script: str, variables: Mapping[str, str]) -> int:
        """Run a script as both runners do, with only this checkout's install on the path."""
        installed = self.checkout.parent / "installed"
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            cwd=self.project,
            env={
                **os.environ,
                "PATH": f"{installed / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
                "PYTHONPATH": str(installed),
                **dict.fromkeys(("PIP_NO_DEPS", "PIP_NO_INDEX", "PIP_UPGRADE"), "1"),
                "PIP_NO_BUILD_ISOLATION": "false",  # which is how pip spells it
                "PIP_TARGET": str(installed),
                **variables,
            },
            capture_output=True,
            text=True,
            check=False,
        )
        self.log += done.stdout + done.stderr
        return done.returncode


def _filled(text: str, context: Mapping[str, str]) -> str:
    return re.sub(r"\$\{\{ *(\S+) *\}\}", lambda found: _filled(context[found[1]], context), text)


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    checkout = tmp_path / "exhume"
    checkout.mkdir()
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", checkout / "src", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE", "constraints.txt"):
        shutil.copy(ROOT / name, checkout / name)
    (tmp_path / "audit.toml").write_text(AUDIT)
    return Runner(tmp_path, checkout)


@pytest.mark.slow
def test_the_action_installs_audits_and_passes_or_fails(runner: Runner) -> None:
    assert runner.action(**{"max-success": "90%"}) == 0, runner.log
    assert (runner.checkout.parent / "installed/exhume/__init__.py").is_file()
    assert runner.outputs == {"verdict": "pass"}
    assert "pass: all 1 settings" in runner.log
    assert "# " in runner.summary
    assert "noisy" in runner.summary
    suite = ElementTree.parse(runner.project / "exhume-gate.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("1", "0")
    (runner.project / "output").unlink()
    assert runner.action("Gate", **{"max-success": "1%"}) == 1
    assert runner.outputs == {"verdict": "fail"}
    assert "steps.gate.outputs.verdict" in ACTION["outputs"]["verdict"]["value"]


@pytest.mark.slow
def test_the_gitlab_job_installs_audits_and_passes_or_fails(runner: Runner) -> None:
    assert runner.gitlab(EXHUME_MAX_SUCCESS="1%") == 1, runner.log
    assert "fail: 1 of 1 settings" in runner.log
    reports = GATE["artifacts"]["reports"]
    assert 'failures="1"' in (runner.project / reports["junit"]).read_text()
    (card,) = GATE["artifacts"]["paths"]
    assert "noisy" in (runner.project / card).read_text()


def test_without_a_limit_nothing_is_installed(runner: Runner) -> None:
    assert runner.action() != 0
    assert "set max-success to the highest" in runner.log
    assert runner.gitlab() != 0
    assert "EXHUME_MAX_SUCCESS: set it to the highest" in runner.log
    assert not (runner.checkout.parent / "installed").exists()


def test_the_private_run_folder_is_no_artefact() -> None:
    assert "upload-artifact" not in (ROOT / "action.yml").read_text(encoding="utf-8")
    assert GATE["variables"]["EXHUME_RUN"] not in GATE["artifacts"]["paths"]


def test_the_page_gives_inputs_and_variables_that_exist() -> None:
    texts = [one.text for one in blocks("docs/how-to/gate.md") if one.language == "yaml"]
    github, gitlab = (yaml.safe_load(text) for text in texts)
    (given,) = (
        step["with"]
        for step in github["jobs"]["privacy-gate"]["steps"]
        if step["uses"].endswith("exhume")
    )
    assert {name for name, one in ACTION["inputs"].items() if one.get("required")} <= set(given)
    assert set(given) <= set(ACTION["inputs"])
    job = gitlab["privacy-gate"]
    assert job["extends"] in JOB
    assert set(job["variables"]) - set(GATE["variables"]) == {"EXHUME_MAX_SUCCESS"}
    assert (ROOT.parent / gitlab["include"]["local"].lstrip("/")).name == "gitlab.yml"
