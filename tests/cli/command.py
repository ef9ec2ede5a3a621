"""The command line, run for real in another process, or quickly in this one."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from tests.patience import PATIENCE_SECONDS

from exhume.cli import main

EXHUME = (sys.executable, "-c", "from exhume.cli import main; main()")
PACED = (sys.executable, "-c", "from tests.cli.paced import held; held()")
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Finished:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line on stderr that a refused command leaves, without its heading."""
        lines = self.err.strip().splitlines()
        assert self.code == 2, (self.code, self.out, self.err)
        assert len(lines) == 1, self.err
        assert lines[0].startswith("error: "), self.err
        return lines[0].removeprefix("error: ")


def invoke(*arguments: str | Path) -> Finished:
    """Run a command in this process; anything but an exit is a test's failure."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    argv = ["exhume", *map(str, arguments)]
    with patch.object(sys, "argv", argv), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 1
    return Finished(code, out.getvalue(), err.getvalue())


def start(*arguments: str | Path, environment: Mapping[str, str] | None = None) -> subprocess.Popen:
    """Start a command as a terminal would: a process group of its own that Ctrl-C reaches."""
    return _started(EXHUME, arguments, environment or {})


def start_held(*arguments: str | Path, batches: int) -> subprocess.Popen:
    """Start a command that stores so many batches and then waits for the signal that ends it."""
    path = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    return _started(PACED, arguments, {"PYTHONPATH": path, "PACED_BATCHES": str(batches)})


def _started(
    program: Sequence[str], arguments: Sequence[str | Path], environment: Mapping[str, str]
) -> subprocess.Popen:
    return subprocess.Popen(
        [*program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        start_new_session=True,
        # A test run in the background has Ctrl-C ignored, and would hand that down.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def finish(process: subprocess.Popen) -> Finished:
    """Wait for a started command."""
    try:
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return Finished(process.returncode, out, err)


def execute(*arguments: str | Path, environment: Mapping[str, str] | None = None) -> Finished:
    """Run a command in another process, to its end."""
    return finish(start(*arguments, environment=environment))
