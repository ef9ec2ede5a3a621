"""Audits that are killed and started again, for real: nothing lost, nothing done twice.

The contract of executors stops them by Ctrl-C too.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.audit import small
from tests.cli.command import finish, invoke, start_held

from exhume.audit import Serial, make_plan, run
from exhume.config import load

TARGETS = 160
TRIALS = 3 * TARGETS
BATCHES = 4
"""Stored by each process that is stopped, of 30: one unit of work, and part of the next."""
TEXT = small.from_file(small.NOISY) + small.audit(TARGETS, seed=1)


@pytest.fixture(scope="module")
def toml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten units of work, each slow enough to be interrupted."""
    path = tmp_path_factory.mktemp("interrupted") / "audit.toml"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="module")
def undisturbed(toml: Path) -> Path:
    """The same audit, in this process, from beginning to end."""
    folder = toml.parent / "undisturbed"
    run(make_plan(load(toml)), folder, Serial())
    return folder


def begin_held(toml: Path, out: Path, workers: int) -> subprocess.Popen:
    """One that cannot end before it is stopped, however late that is."""
    return start_held("audit", toml, "--out", out, "--workers", str(workers), batches=BATCHES)


@pytest.mark.slow
def test_kill_dash_nine_again_and_again(toml: Path, undisturbed: Path, tmp_path: Path) -> None:
    """Once while it starts, then at random moments of its work."""
    out, kept, moment = tmp_path / "run", {}, random.Random(7)
    for kills in range(3):
        process = begin_held(toml, out, 1 + kills % 2)
        if kills == 0:
            time.sleep(moment.uniform(0.3, 1.5))
        else:
            small.wait_for_more(out, len(kept), process)
            time.sleep(moment.uniform(0.0, 0.05))
        os.kill(process.pid, signal.SIGKILL)
        assert finish(process).code == -signal.SIGKILL
        assert kept.items() <= small.seconds(out).items(), "something was lost or done twice"
        kept = small.seconds(out)
        small.assert_workers_left(process.pid)
    assert 2 * TRIALS // 30 <= len(kept) < TRIALS
    found = invoke("audit", toml, "--out", out, "--workers", "2")
    assert (found.code, found.err) == (0, "")
    assert len(small.rows(out)) == TRIALS
    assert kept.items() <= small.seconds(out).items(), "something was lost or done twice"
    small.same(small.outcome(out), small.outcome(undisturbed))
    small.same(small.artefacts(out), small.artefacts(undisturbed))
    assert not list(out.rglob(".tmp-*"))


def test_two_audits_on_one_folder(toml: Path, tmp_path: Path) -> None:
    process = begin_held(toml, tmp_path / "run", 1)
    try:
        small.wait_for_more(tmp_path / "run", 0, process)
        second = invoke("audit", toml, "--out", tmp_path / "run", "--workers", "2")
        assert "is in use by another audit; wait for it or choose another --out" in second.error
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        finish(process)


def test_a_finished_audit_only_renders_again(toml: Path, undisturbed: Path) -> None:
    before = small.seconds(undisturbed)
    found = invoke("audit", toml, "--out", undisturbed, "--workers", "1", "--quiet")
    assert found.code == 0
    assert small.seconds(undisturbed) == before
    assert (undisturbed / "report.html").is_file()
    assert str(undisturbed / "report.html") in found.out
