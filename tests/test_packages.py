"""What is installed: the wheel holds all that an audit needs, and nothing for developers."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.audit import small

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
IMPORTED_AS = {
    "scikit-learn": "sklearn",
    "dp-accounting": "dp_accounting",
    "mlflow-skinny": "mlflow",
}

COMES_WITH = {"pydantic_core": "pydantic"}
"""The other names of a package."""

WHERE_THERE = {"polars", "pyarrow"}
"""Frames and Parquet files of a user who has them; without, one line says what to install."""


def packages(needed: list[str]) -> set[str]:
    names = [re.split(r"[^A-Za-z0-9._-]", one)[0] for one in needed]
    return {IMPORTED_AS.get(name, name) for name in names}


def imported() -> set[str]:
    """The packages of others that the sources import, anywhere in a file."""
    found = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Import(names=names):
                    found |= {name.name.split(".")[0] for name in names}
                case ast.ImportFrom(module=str(module), level=0):
                    found.add(module.split(".")[0])
    found = {COMES_WITH.get(name, name) for name in found}
    return found - set(sys.stdlib_module_names) - {"exhume"}


def test_what_is_imported_is_required() -> None:
    extras = PROJECT["optional-dependencies"]
    own = packages(PROJECT["dependencies"])
    optional = packages([one for name, needed in extras.items() if name != "dev" for one in needed])
    assert imported() <= own | optional | WHERE_THERE
    assert own <= imported()


def test_developers_tools_are_no_requirement() -> None:
    tools = {"hypothesis", "mypy", "playwright", "pytest", "pytest-xdist", "ruff"}
    assert tools <= packages(PROJECT["optional-dependencies"]["dev"])
    assert tools.isdisjoint(packages(PROJECT["dependencies"]))


def test_make_installs_them_for_developers_only() -> None:
    """What ``make`` would do in a checkout without an environment."""

    def would(target: str) -> str:
        command = ["make", "--dry-run", target, "VENV=no-such-environment"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        return done.stdout

    assert "pip install" in would("audit")
    assert "[dev]" not in would("audit")
    for target in ("test", "lint", "bench"):
        assert "[dev]" in would(target)


def test_the_versions_of_python_that_are_stated() -> None:
    stated = [one for one in PROJECT["classifiers"] if one.startswith("Programming Language")]
    assert {one.split(" :: ")[-1] for one in stated} == {"3", "3.11", "3.12", "3.13"}
    assert PROJECT["requires-python"] == ">=3.11"


@pytest.mark.slow
def test_the_wheel_of_the_source_distribution_audits(tmp_path: Path) -> None:
    """Built, installed into a new environment, and run where the checkout is out of reach."""
    (tmp_path / "audit.toml").write_text(small.PLAIN + small.audit(2))
    command = [sys.executable, ROOT / "tools" / "clean_install.py", tmp_path / "audit.toml"]
    found = subprocess.run(
        [*map(str, command), "--reuse"],
        env={**os.environ, "COLUMNS": "80"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert re.search(r"built: exhume-[\d.]+-py3-none-any\.whl", found.stdout)
    assert "100% [16%–100%]" in found.stdout
