"""The run folder: private, whole after a crash at any step, clear about what is wrong with it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from tests.audit import small

from exhume.audit import Plan, Serial, Store, judge, run, summarise
from exhume.protocol.errors import ExhumeError, InputError, StoreError


@pytest.fixture(scope="module")
def plan() -> Plan:
    """Two units of 16 and 4 targets under three attacks."""
    return small.plan(small.PLAIN, small.audit(20))


@pytest.fixture(scope="module")
def finished(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder that nothing happened to."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    run(plan, folder, Serial())
    return folder


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    """A copy of it to damage."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture
def open_umask() -> Iterator[None]:
    """A user who hides nothing by default."""
    before = os.umask(0)
    yield
    os.umask(before)


def _modes(folder: Path) -> dict[str, int]:
    paths = [folder, *folder.rglob("*")]
    return {str(p): stat.S_IMODE(p.stat().st_mode) for p in paths}


class TestPrivacy:
    @pytest.mark.usefixtures("open_umask")
    def test_only_the_owner_reads_it_at_every_moment(self, plan: Plan, tmp_path: Path) -> None:
        folder, seen = tmp_path / "run", []

        def look(done: int, total: int) -> None:
            seen.append(done)
            for path, mode in _modes(folder).items():
                assert mode == (0o700 if Path(path).is_dir() else 0o600), path

        run(plan, folder, Serial(), progress=look)
        look(-1, -1)
        assert len(seen) == 4
        names = {p.name for p in folder.iterdir()}
        assert {"artefacts", "records.sqlite", "summary.json"} <= names

    def test_an_open_folder_is_closed(self, plan: Plan, tmp_path: Path) -> None:
        folder = tmp_path / "run"
        folder.mkdir()
        folder.chmod(0o777)
        run(plan, folder, Serial())
        assert set(_modes(folder).values()) == {0o700, 0o600}

    def test_a_folder_with_other_things_in_it_is_left_alone(
        self, plan: Plan, tmp_path: Path
    ) -> None:
        """``--out .`` must not lock others out of a project."""
        (tmp_path / "thesis.tex").write_text("mine")
        tmp_path.chmod(0o755)
        with pytest.raises(StoreError, match="is not a run folder, and not empty"):
            run(plan, tmp_path, Serial())
        assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
        assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


class TestCrashes:
    def test_after_any_step(self, plan: Plan, finished: Path, tmp_path: Path) -> None:
        """Stopped after any single durable step, the same audit ends the same."""
        steps = 0
        while _crashed_after(steps, plan, tmp_path / f"run-{steps}"):
            folder = tmp_path / f"run-{steps}"
            kept = small.seconds(folder)
            run(plan, folder, Serial())
            small.same(small.outcome(folder), small.outcome(finished))
            assert kept.items() <= small.seconds(folder).items(), "something was done twice"
            steps += 1
        # 12 notes, the truth and facts of one setting, arrays and records of 2 units × 3 attacks.
        assert steps == 12 + 2 + 12

    def test_half_a_file_is_never_seen(self, plan: Plan, tmp_path: Path) -> None:
        """What a killed process was writing is removed, and never read."""
        run(plan, tmp_path / "run", Serial())
        for leftover in (tmp_path / "run" / ".tmp-1", tmp_path / "run" / "artefacts" / ".tmp-2"):
            leftover.write_bytes(b"half")
        run(plan, tmp_path / "run", Serial())
        assert not list((tmp_path / "run").rglob(".tmp-*"))


class _CrashError(BaseException):
    """The process ends here."""


def _crashed_after(step: int, plan: Plan, folder: Path) -> bool:
    """Run up to and with durable step number ``step``; tell whether there was one."""
    count = -1

    def guarded(original: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: object) -> None:
            nonlocal count
            original(*arguments)
            count += 1
            if count == step:
                raise _CrashError

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in ("set_meta", "add_setting", "save_arrays", "add_outcomes"):
            patch.setattr(Store, name, guarded(getattr(Store, name)))
        try:
            run(plan, folder, Serial())
        except _CrashError:
            return True
    return False


class TestWhoseFolder:
    def test_another_audits_folder_is_refused(self, copied: Path) -> None:
        before = small.outcome(copied)
        other = small.plan(small.PLAIN, small.audit(20, seed=1))
        with pytest.raises(StoreError, match=r"holds another audit \(settings plain, seed 0\)"):
            run(other, copied, Serial())
        small.same(small.outcome(copied), before)

    def test_a_corrected_mistake_is_no_other_audit(self, tmp_path: Path) -> None:
        """A file that failed before any trial leaves nothing that its correction trips over."""
        wrong = small.plan(small.PLAIN, small.SCALED.replace("breast-c", "brest-c"), small.audit(2))
        with pytest.raises(InputError, match="did you mean 'breast-cancer'"):
            run(wrong, tmp_path / "run", Serial())
        right = small.plan(small.SCALED, small.audit(2))
        summary = run(right, tmp_path / "run", Serial())
        assert [b.setting for b in summary.brackets] == ["scaled"]
        assert set(small.rows(tmp_path / "run")) == small.expected_keys(right)
        files = {p.name for p in (tmp_path / "run" / "artefacts").iterdir()}
        assert all(name.startswith("000-") for name in files), (
            "the mistake's records are still there"
        )

    def test_one_audit_at_a_time(self, plan: Plan, tmp_path: Path) -> None:
        with (
            Store.create(tmp_path / "run"),
            pytest.raises(StoreError, match="is in use by another"),
        ):
            run(plan, tmp_path / "run", Serial())
        run(plan, tmp_path / "run", Serial())

    def test_reading_does_not_disturb(self, plan: Plan, tmp_path: Path) -> None:
        """A gate or report may look at a run that is under way."""
        looked = []

        def look(done: int, total: int) -> None:
            with Store.open(tmp_path / "run") as store:
                summary = summarise(store.run())
            looked.append((summary.trials, summary.complete))

        run(plan, tmp_path / "run", Serial(), progress=look)
        assert looked == [(0, False), (48, False), (60, True)]

    def test_another_schema_is_refused(self, plan: Plan, copied: Path) -> None:
        with closing(sqlite3.connect(copied / "records.sqlite")) as database, database:
            database.execute("UPDATE meta SET value = '999' WHERE name = 'schema_version'")
        for attempt in (lambda: Store.open(copied), lambda: run(plan, copied, Serial())):
            with pytest.raises(InputError, match="schema 999, this version reads 1 and 2"):
                attempt()

    def test_no_run_folder(self, tmp_path: Path) -> None:
        for path in (tmp_path, tmp_path / "none", tmp_path / "none" / "deeper"):
            with pytest.raises(InputError, match="is not a run folder"):
                Store.open(path)

    def test_below_a_file(self, plan: Plan, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(StoreError, match="is a file, but a folder is needed"):
            run(plan, tmp_path / "file", Serial())
        with pytest.raises(StoreError, match="Not a directory"):
            run(plan, tmp_path / "file" / "run", Serial())


class TestDamage:
    def test_not_a_database(self, plan: Plan, copied: Path) -> None:
        (copied / "records.sqlite").write_bytes(b"these are my notes" * 400)
        for attempt in (lambda: Store.open(copied), lambda: run(plan, copied, Serial())):
            with pytest.raises(StoreError, match=r"records\.sqlite is damaged .* use a new --out"):
                attempt()

    @pytest.mark.parametrize("seed", range(60))
    def test_wherever_the_damage_is(self, plan: Plan, copied: Path, seed: int) -> None:
        """Overwritten or cut off anywhere: it still works, or says so in one line."""
        path, rng = copied / "records.sqlite", np.random.default_rng(seed)
        content = bytearray(path.read_bytes())
        start = int(rng.integers(len(content)))
        if seed % 4 == 0:
            del content[start:]
        else:
            width = int(rng.choice([1, 8, 512, 4096]))
            content[start : start + width] = rng.bytes(min(width, len(content) - start))
        path.write_bytes(content)
        for attempt in (_read_all, lambda folder: run(plan, folder, Serial())):
            complaint = ""
            try:
                attempt(copied)
            except ExhumeError as error:
                complaint = str(error)
            assert len(complaint.splitlines()) <= 1
            assert complaint == "" or str(copied) in complaint

    def test_removed_artefacts_leave_the_numbers(self, plan: Plan, copied: Path) -> None:
        """Candidates may be deleted once they were looked at."""
        shutil.rmtree(copied / "artefacts")
        assert summarise(Store.open(copied).run()).complete
        assert Store.open(copied).arrays("000-truth") == {}
        run(plan, copied, Serial())


def _read_all(folder: Path) -> None:
    with Store.open(folder) as store:
        judge(summarise(store.run()), 0.5)
