"""Every executor against the contract."""

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
from exhume.errors import ExhumeError, InputError


class TestSerial(ExecutorContract):
    executor = Serial()


class TestProcesses(ExecutorContract):
    executor = Processes(2)

    def test_a_killed_worker_is_an_error_in_one_line(self, tmp_path: Path) -> None:
        """As the kernel does when memory runs out."""
        slow = small.plan(
            small.PLAIN, small.audit(32), extra=(small.Marking(str(tmp_path), pause=0.2),)
        )
        killer = threading.Thread(target=_kill_workers_at_first_mark, args=(tmp_path,))
        killer.start()
        with pytest.raises(ExhumeError, match="a worker process was ended") as caught:
            list(self.executor.run(slow, slow.units(), frozenset()))
        killer.join()
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("workers", [0, -1])
    def test_no_workers_are_refused(self, workers: int) -> None:
        with pytest.raises(InputError, match=f"workers must be at least 1, got {workers}"):
            Processes(workers)


def _kill_workers_at_first_mark(folder: Path) -> None:
    while not any(folder.iterdir()):
        time.sleep(0.01)
    for child in multiprocessing.active_children():
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
