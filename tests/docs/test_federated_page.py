"""The page about federated learning runs as it stands, Flower's simulation included."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.pages import ROOT
from tests.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.slow

FOLLOW = """
from tests.docs.pages import Session, blocks

session = Session()
for block in blocks("docs/how-to/federated-learning.md"):
    session.run(block)
"""


def test_a_reader_can_follow(tmp_path: Path) -> None:
    """In a process of its own: Flower's simulation starts Ray, and changes the environment."""
    paths = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    around = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    # Ray would kill clients where other tests take most of the memory.
    own = {"PYTHONPATH": paths, "FLWR_HOME": str(tmp_path), "RAY_memory_monitor_refresh_ms": "0"}
    done = subprocess.run(
        [sys.executable, "-c", FOLLOW],
        cwd=tmp_path,
        env={**around, **own, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
