"""Every executor against the contract; Ray has a file of its own."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from tests.audit import small
from tests.contract.executor import ExecutorContract

from exhume.audit import Processes, Serial
from exhume.errors import InputError


class TestSerial(ExecutorContract):
    executor = Serial()
    options = ("--executor", "serial")
    outside = False


class TestProcesses(ExecutorContract):
    executor = Processes(2)
    options = ("--executor", "processes", "--workers", "2")

    def test_all_workers_killed_at_once(self, tmp_path: Path) -> None:
        slow = small.plan(
            small.PLAIN, small.audit(32), extra=(small.Marking(str(tmp_path), pause=0.05),)
        )
        killer = threading.Thread(target=_kill_workers_at_first_mark, args=(tmp_path,))
        killer.start()
        ran = list(self.executor.run(slow, slow.units(), frozenset()))
        killer.join()
        assert sorted(unit.targets[0] for unit, _ in ran) == [0, 16]

    @pytest.mark.parametrize("workers", [0, -1])
    def test_no_workers_are_refused(self, workers: int) -> None:
        with pytest.raises(InputError, match=f"workers must be at least 1, got {workers}"):
            Processes(workers)

    def test_an_error_of_the_work_comes_with_its_frames(self) -> None:
        with pytest.raises(ZeroDivisionError) as caught:
            list(self.executor.map(small.divided, 1, [1, 0]))
        assert any("small.py" in note for note in caught.value.__notes__)


def _kill_workers_at_first_mark(folder: Path) -> None:
    while not any(folder.iterdir()):
        time.sleep(0.01)
    for child in multiprocessing.active_children():
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
