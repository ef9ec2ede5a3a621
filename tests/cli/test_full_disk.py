"""A full disk and a read-only one: an error in one line, and the same command resumes later."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tests.audit import small
from tests.cli.command import invoke
from tests.cli.mounted import inside_python, require_mounts

from exhume.audit import Plan, Serial, run
from exhume.protocol.errors import StoreError
from exhume.runlog import store as store_module

TEXT = small.from_file(small.PLAIN + small.SCALED) + small.audit(40)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return small.plan(TEXT)


@pytest.fixture(scope="module")
def undisturbed(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("full") / "run"
    run(plan, folder, Serial())
    return folder


SMALL_DISKS = """
import json, shutil
from tests.cli.command import invoke
toml, disk, *sizes = sys.argv[1:]
for size in sizes:
    mount("-t", "tmpfs", "-o", f"size={size}k", "none", disk)
    command = ("audit", toml, "--out", f"{disk}/run", "--workers", "1")
    first = invoke(*command)
    mount("-o", "remount,size=64m", disk)
    second = invoke(*command)
    shutil.copytree(f"{disk}/run", f"{disk}-{size}")
    subprocess.run(["umount", disk], check=True)
    print(json.dumps([first.code, first.err, second.code]))
"""


@pytest.mark.slow
def test_disks_that_are_really_full(tmp_path: Path, undisturbed: Path) -> None:
    require_mounts()
    (tmp_path / "audit.toml").write_text(TEXT)
    (tmp_path / "disk").mkdir()
    sizes = ("100", "320")
    found = inside_python(SMALL_DISKS, tmp_path / "audit.toml", tmp_path / "disk", *sizes)
    ends = [json.loads(line) for line in found.stdout.splitlines()]
    assert [(first, second) for first, _, second in ends] == [(2, 0), (2, 0)], found
    for size, (_, said, _) in zip(sizes, ends, strict=True):
        (line,) = said.splitlines()
        assert "the disk is full" in line
        assert "free some space and run the same command again" in line
        small.same(small.outcome(tmp_path / f"disk-{size}"), small.outcome(undisturbed))


READ_ONLY = """
import json
from tests.cli.command import invoke
disk, toml = sys.argv[1:]
mount("--bind", disk, disk)
mount("-o", "remount,bind,ro", disk)
for command in (
    ("gate", f"{disk}/run", "--max-success", "0.5"),
    ("audit", toml, "--out", f"{disk}/run", "--workers", "1"),
    ("audit", toml, "--out", f"{disk}/new", "--workers", "1"),
    ("report", f"{disk}/run"),
):
    found = invoke(*command)
    print(json.dumps([found.code, found.out, found.err]))
"""


@pytest.mark.slow
def test_a_read_only_folder(tmp_path: Path) -> None:
    """Nothing can be added, but the gate can still be asked."""
    require_mounts()
    disk, toml = tmp_path / "disk", tmp_path / "audit.toml"
    disk.mkdir()
    toml.write_text(small.from_file(small.PLAIN) + small.audit(4))
    assert invoke("audit", toml, "--out", disk / "run", "--workers", "1", "--quiet").code == 0
    found = inside_python(READ_ONLY, disk, toml)
    gate, *others = [json.loads(line) for line in found.stdout.splitlines()]
    assert (gate[0], gate[2]) == (1, ""), found
    assert "FAIL  plain: glm reached 100.0%" in gate[1]
    assert [code for code, _, _ in others] == [2, 2, 2], found
    for _, _, said in others:
        (line,) = said.splitlines()
        assert "Read-only file system" in line


class TestInjected:
    """The same without mounting: SQLite with a limit, files that can't be synchronised."""

    @pytest.mark.parametrize("pages", [1, 4, 12, 25, 40])
    def test_a_database_that_may_not_grow(
        self,
        plan: Plan,
        undisturbed: Path,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        pages: int,
    ) -> None:
        connected = store_module._connected

        def limited(path: Path) -> sqlite3.Connection:
            database = connected(path)
            database.execute(f"PRAGMA max_page_count = {pages}")
            return database

        monkeypatch.setattr(store_module, "_connected", limited)
        with pytest.raises(StoreError, match="the disk is full; finished trials are kept"):
            run(plan, tmp_path / "run", Serial())
        monkeypatch.undo()
        self._goes_on(plan, undisturbed, tmp_path / "run")

    @pytest.mark.parametrize("after", [0, 1, 5, 13])
    @pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
    def test_a_file_that_can_not_be_kept(
        self,
        plan: Plan,
        undisturbed: Path,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        after: int,
        code: int,
    ) -> None:
        calls, real = 0, os.fsync

        def failing(handle: int) -> None:
            nonlocal calls
            calls += 1
            if calls > after:
                raise OSError(code, os.strerror(code))
            real(handle)

        monkeypatch.setattr(os, "fsync", failing)
        with pytest.raises(StoreError) as caught:
            run(plan, tmp_path / "run", Serial())
        expected = os.strerror(code) if code == errno.EIO else "the disk is full"
        assert expected in str(caught.value)
        assert "\n" not in str(caught.value)
        monkeypatch.undo()
        assert not list((tmp_path / "run").rglob(".tmp-*"))
        self._goes_on(plan, undisturbed, tmp_path / "run")

    def test_on_the_command_line(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(handle: int) -> Any:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        (tmp_path / "audit.toml").write_text(TEXT)
        arguments = (tmp_path / "audit.toml", "--out", tmp_path / "run", "--workers", "1")
        monkeypatch.setattr(os, "fsync", full)
        assert "the disk is full" in invoke("audit", *arguments).error
        monkeypatch.undo()
        assert invoke("audit", *arguments).code == 0

    def _goes_on(self, plan: Plan, undisturbed: Path, folder: Path) -> None:
        kept = small.seconds(folder)
        run(plan, folder, Serial())
        assert kept.items() <= small.seconds(folder).items(), "something was done twice"
        small.same(small.outcome(folder), small.outcome(undisturbed))
        small.same(small.artefacts(folder), small.artefacts(undisturbed))
