"""Audits that are stopped, killed and started again, for real: nothing lost, nothing done twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.audit import small
from tests.cli.command import finish, invoke, start

from exhume.audit import Serial, make_plan, run
from exhume.config import load

TARGETS = 160
TRIALS = 3 * TARGETS
TEXT = small.NOISY + small.audit(TARGETS, seed=1)


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


def begin(toml: Path, out: Path, workers: int) -> subprocess.Popen:
    return start("audit", toml, "--out", out, "--workers", str(workers))


def group_members(group: int) -> list[int]:
    """Processes of a group that are still running."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except (OSError, ValueError):
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            found.append(int(entry.name))
    return found


@pytest.mark.slow
def test_ctrl_c_and_on(toml: Path, undisturbed: Path, tmp_path: Path) -> None:
    """Stopped with one worker, then with two, then left to end."""
    out, kept = tmp_path / "run", {}
    for workers in (1, 2):
        process = begin(toml, out, workers)
        small.wait_for_more(out, len(kept), process)
        os.killpg(process.pid, signal.SIGINT)
        found = finish(process)
        assert found.code == 130
        assert found.err == ""
        assert found.out.splitlines()[-1] == (
            f"stopped; finished trials are kept in {out}: run the same command to go on"
        )
        _assert_workers_left(process.pid)
        assert kept.items() <= small.seconds(out).items()
        kept = small.seconds(out)
        assert 0 < len(kept) < TRIALS
        verdict = invoke("gate", out, "--max-success", "1")
        assert (verdict.code, "not finished" in verdict.out) == (1, True)
    found = finish(begin(toml, out, 2))
    assert (found.code, found.err) == (0, "")
    assert (out / "report.html").is_file()
    assert kept.items() <= small.seconds(out).items(), "something was done twice"
    small.same(small.outcome(out), small.outcome(undisturbed))
    small.same(small.artefacts(out), small.artefacts(undisturbed))


@pytest.mark.slow
def test_kill_dash_nine_again_and_again(toml: Path, undisturbed: Path, tmp_path: Path) -> None:
    """Once while it starts, then at random moments of its work."""
    out, kept, moment = tmp_path / "run", {}, random.Random(7)
    kills = 0
    while kills < 6 and len(kept) < TRIALS:
        process = begin(toml, out, 1 + kills % 2)
        if kills == 0:
            time.sleep(moment.uniform(0.3, 1.5))
        else:
            small.wait_for_more(out, len(kept), process)
            time.sleep(moment.uniform(0.0, 0.05))
        os.kill(process.pid, signal.SIGKILL)
        assert finish(process).code == -signal.SIGKILL
        assert kept.items() <= small.seconds(out).items(), "something was lost or done twice"
        kept = small.seconds(out)
        kills += 1
        _assert_workers_left(process.pid)
    assert kills >= 5
    found = finish(begin(toml, out, 2))
    assert (found.code, found.err) == (0, "")
    assert len(small.rows(out)) == TRIALS
    assert kept.items() <= small.seconds(out).items(), "something was lost or done twice"
    small.same(small.outcome(out), small.outcome(undisturbed))
    small.same(small.artefacts(out), small.artefacts(undisturbed))
    assert not list(out.rglob(".tmp-*"))


def _assert_workers_left(group: int) -> None:
    """Workers whose parent was killed must not wait for it for ever."""
    deadline = time.monotonic() + 20
    while group_members(group):
        assert time.monotonic() < deadline, "workers outlive the audit"
        time.sleep(0.05)


def test_two_audits_on_one_folder(toml: Path, tmp_path: Path) -> None:
    process = begin(toml, tmp_path / "run", 1)
    try:
        small.wait_for_more(tmp_path / "run", 0, process)
        # Held still, so that it can't end before the second one asks.
        os.kill(process.pid, signal.SIGSTOP)
        second = finish(begin(toml, tmp_path / "run", 2))
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
