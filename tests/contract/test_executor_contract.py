"""Tests every executor against the contract; Ray has its own file."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
from tests.audit import small
from tests.contract.executor import PLAIN, ExecutorContract, ran_on

from exhume.audit import Processes, Serial
from exhume.protocol.errors import InputError
from exhume.runtime import processes


class TestSerial(ExecutorContract):
    executor = Serial()
    options = ("--executor", "serial")
    outside = False


class TestProcesses(ExecutorContract):
    executor = Processes(2)
    options = ("--executor", "processes", "--workers", "2")

    def test_all_workers_killed_at_once(self, tmp_path: Path) -> None:
        """Each in the middle of a unit: others begin both again."""
        folder, until = tmp_path / "marks", tmp_path / "go"
        folder.mkdir()
        held = small.plan(PLAIN, small.audit(32), extra=(small.Marking(str(folder), str(until)),))
        killer = threading.Thread(target=_kill_both_workers, args=(folder, until))
        killer.start()
        ran = list(ran_on(self.executor, held, held.units(), frozenset()))
        killer.join()
        assert sorted(unit.targets[0] for unit, _ in ran) == [0, 16]
        assert len(small.marks(folder)) == 2 + 32, "nobody was killed"

    def test_workers_begin_with_the_libraries(self) -> None:
        names = [{"name": name} for name in processes._LOADED_ONCE]
        found = list(self.executor.map(eval, "name in __import__('sys').modules", names))
        assert [there for _, there in found] == [True] * len(names)

    def test_workers_have_the_variables_of_this_moment(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for value in ("one", "two"):
            monkeypatch.setenv("EXHUME_TESTED", value)
            said = list(self.executor.map(eval, "__import__('os').environ['EXHUME_TESTED']", [{}]))
            assert said == [(0, value)]

    @pytest.mark.parametrize("workers", [0, -1])
    def test_no_workers_are_refused(self, workers: int) -> None:
        with pytest.raises(InputError, match=f"workers must be at least 1, got {workers}"):
            Processes(workers)

    def test_an_error_of_the_work_comes_with_its_frames(self) -> None:
        with pytest.raises(ZeroDivisionError) as caught:
            list(self.executor.map(small.divided, 1, [1, 0]))
        assert any("small.py" in note for note in caught.value.__notes__)


def _kill_both_workers(folder: Path, until: Path) -> None:
    small.wait_for(lambda: len(small.marks(folder)) == 2)
    for worker in small.marks(folder):
        os.kill(worker, signal.SIGKILL)
    until.touch()
