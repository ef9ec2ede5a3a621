"""A full disk and a read-only one: an error in one line, and the same command goes on later."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tests.audit import small
from tests.cli.command import invoke
from tests.cli.mounted import inside, require_mounts

from exhume.audit import Plan, Serial, run
from exhume.audit import store as store_module
from exhume.errors import StoreError

TEXT = small.PLAIN + small.SCALED + small.audit(40)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return small.plan(TEXT)


@pytest.fixture(scope="module")
def undisturbed(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("full") / "run"
    run(plan, folder, Serial())
    return folder


SMALL_DISK = """
mount -t tmpfs -o size=$1k none "$3" || exit 99
exhume audit "$2/audit.toml" --out "$3/run" --workers 1; first=$?
mount -o remount,size=64m "$3"
exhume audit "$2/audit.toml" --out "$3/run" --workers 1 --quiet >/dev/null; second=$?
cp -r "$3/run" "$2/copy"
echo "codes $first $second"
"""


@pytest.mark.slow
@pytest.mark.parametrize("kilobytes", [100, 320])
def test_a_disk_that_is_really_full(tmp_path: Path, undisturbed: Path, kilobytes: int) -> None:
    require_mounts()
    (tmp_path / "audit.toml").write_text(TEXT)
    (tmp_path / "disk").mkdir()
    found = inside(SMALL_DISK, str(kilobytes), tmp_path, tmp_path / "disk")
    assert "codes 2 0" in found.stdout, found
    lines = found.stderr.strip().splitlines()
    assert len(lines) == 1, found.stderr
    assert "the disk is full" in lines[0]
    assert "free some space and run the same command again" in lines[0]
    small.same(small.outcome(tmp_path / "copy"), small.outcome(undisturbed))


READ_ONLY = """
mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" || exit 99
exhume gate "$1/run" --max-success 0.5; gate=$?
exhume audit "$2" --out "$1/run" --workers 1; same=$?
exhume audit "$2" --out "$1/new" --workers 1; new=$?
exhume report "$1/run"; report=$?
echo "codes $gate $same $new $report"
"""


@pytest.mark.slow
def test_a_read_only_folder(tmp_path: Path) -> None:
    """Nothing can be added, but the gate can still be asked."""
    require_mounts()
    disk, toml = tmp_path / "disk", tmp_path / "audit.toml"
    disk.mkdir()
    toml.write_text(small.PLAIN + small.audit(4))
    assert invoke("audit", toml, "--out", disk / "run", "--workers", "1", "--quiet").code == 0
    found = inside(READ_ONLY, disk, toml)
    assert "codes 1 2 2 2" in found.stdout, found
    assert "FAIL  plain: glm reached 100.0%" in found.stdout
    lines = found.stderr.strip().splitlines()
    assert len(lines) == 3, found.stderr
    assert all("Read-only file system" in line for line in lines)


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
        with pytest.raises(StoreError, match="the disk is full; what was finished before is kept"):
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
