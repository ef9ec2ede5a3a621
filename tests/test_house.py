"""The tree shows the architecture: who may import whom, and what an import costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "exhume"

# A room may import itself and the rooms named here, in functions and for type checking too.
ROOMS = {
    "protocol": "",
    "stats": "protocol",
    "runtime": "protocol",
    "models": "protocol",
    "derivatives": "protocol models",
    "data": "protocol runtime",
    "metrics": "protocol stats",
    "bounds": "protocol stats derivatives",
    "training": "protocol stats models derivatives",
    "opacus": "protocol runtime models data",
    "client": "protocol runtime models data",
    "lightning": "protocol client",
    "huggingface": "protocol client",
    "defences": "protocol models derivatives training",
    "shadows": "protocol models training runtime defences",
    "attacks": "protocol stats runtime models derivatives metrics bounds training defences shadows",
    "runlog": "protocol stats runtime data",
    "config": "protocol models defences",
    "audit": "protocol stats runtime models data metrics bounds training defences shadows attacks "
    "runlog config",
    "report": "protocol stats runtime metrics runlog",
    "studies": "protocol stats runtime attacks config runlog audit report",
    "torch": "protocol models training",
    "mlflow": "protocol runlog report",
    "cli": "protocol stats runtime models data metrics bounds training defences attacks config "
    "runlog audit report studies mlflow",
    "api": "protocol models runlog audit report cli",
    "sklearn": "protocol data training audit api",
    "flower": "protocol runtime models data config audit api",
}

# The same inside attacks/: the threat models do not know each other.
THREATS = {
    "linear": "",
    "estimators": "",
    "informed": "",
    "gradients": "",
    "weights_only": "gradients",
}

# And between the three engines of trajectory inversion, with what they share beside them.
ENGINES = {"many_targets": "", "one_target": "", "linear_response": ""}


def modules() -> dict[str, Path]:
    """Return every module of the package by its dotted name."""
    found = {}
    for path in SRC.rglob("*.py"):
        parts = path.relative_to(SRC.parent).with_suffix("").parts
        found[".".join(parts).removesuffix(".__init__")] = path
    return found


MODULES = modules()


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Yield every module of the package that a file imports, anywhere in it, with the line."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, name.name) for name in names)
            case ast.ImportFrom(module=str(module), names=names):
                for name in names:
                    whole = f"{module}.{name.name}"
                    yield node.lineno, whole if whole in MODULES else module


def crossings(folder: str) -> Iterator[tuple[str, str, str]]:
    """Yield (from, to, where) for each import from one room of ``folder`` into another."""
    prefix = f"{folder}."
    for module, path in MODULES.items():
        if not module.startswith(prefix):
            continue
        room = module.removeprefix(prefix).split(".")[0]
        for line, target in imports(path):
            other = target.removeprefix(prefix).split(".")[0]
            if target.startswith(prefix) and other != room:
                yield room, other, f"{module}:{line} imports {target}"


@pytest.mark.parametrize(
    ("folder", "allowed"),
    [
        ("exhume", ROOMS),
        ("exhume.attacks", THREATS),
        ("exhume.attacks.informed.trajectory", ENGINES),
    ],
    ids=["rooms", "threat models", "engines"],
)
def test_a_room_imports_only_the_rooms_below_it(folder: str, allowed: dict[str, str]) -> None:
    wrong = [
        where
        for room, other, where in crossings(folder)
        if room in allowed and other in {*ROOMS, *allowed} and other not in allowed[room].split()
    ]
    assert not wrong, "\n".join(wrong)


def test_the_rules_have_no_cycle_and_name_every_room() -> None:
    rooms = {path.name for path in SRC.iterdir() if (path / "__init__.py").exists()}
    bridges = {"sklearn", "torch", "api", "opacus", "mlflow", "client", "lightning", "huggingface"}
    assert rooms | bridges == set(ROOMS)
    below: set[str] = set()
    for room, allowed in ROOMS.items():
        assert set(allowed.split()) <= below, f"{room} stands before a room that it may import"
        below.add(room)


def test_a_class_name_has_one_meaning() -> None:
    names = Counter(
        node.name
        for path in MODULES.values()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    )
    # Users say which is meant: exhume.attacks.GLM inverts what exhume.training.GLM fits.
    assert {name for name, count in names.items() if count > 1} == {"GLM"}


@pytest.mark.parametrize(
    "module", ["exhume", "exhume.attacks", "exhume.bounds", "exhume.defences", "exhume.cli.main"]
)
def test_importing_does_not_load_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_file_is_a_room() -> None:
    """At most 400 lines, and functions of at most 70."""
    long = [name for name, path in MODULES.items() if len(_lines(path)) > 400]
    long += [
        f"{name}:{node.lineno} {node.name}"
        for name, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= 70
    ]
    assert not long


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()
