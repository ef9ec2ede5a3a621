"""Small and read-only file systems, in a mount namespace that vanishes with its process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import pytest
from tests.cli.command import ROOT
from tests.patience import PATIENCE_SECONDS


@lru_cache(maxsize=1)
def why_not() -> str | None:
    """Why nothing can be mounted here, or None."""
    if shutil.which("unshare") is None:
        return "there is no unshare(1) to mount file systems with"
    probe = [*_namespace(), "mount", "-t", "tmpfs", "none", "/mnt"]
    found = subprocess.run(probe, capture_output=True, text=True)
    if found.returncode == 0:
        return None
    return f"mounting is not permitted here: {(found.stderr.strip() or 'no reason given')}"


def require_mounts() -> None:
    """Skip the test where nothing can be mounted."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)


def inside(script: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a shell script as root of a mount namespace of its own."""
    return _run("bash", "-c", f"set -u\n{script}", "script", *arguments)


def inside_python(program: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The same with a Python program, which may import ``tests`` and calls ``mount`` to mount."""
    return _run(sys.executable, "-c", f"{_MOUNT}\n{program}", *arguments)


_MOUNT = """
import subprocess, sys

def mount(*options):
    if subprocess.run(["mount", *map(str, options)]).returncode:
        sys.exit(99)
"""


def _run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    return subprocess.run(
        [*_namespace(), *map(str, command)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
    )


def _namespace() -> list[str]:
    # The superuser needs no namespace of users, and may not be allowed one.
    users = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", *users, "--mount"]
