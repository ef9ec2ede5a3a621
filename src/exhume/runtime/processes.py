"""Several processes on this machine, each with one thread."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from typing import Any

from exhume.protocol.errors import InputError
from exhume.runtime.executor import Common, Executor, Losses, Result, Task, attempt

_LOADED_ONCE = ("torch", "scipy.linalg", "scipy.optimize", "exhume.audit", "exhume.attacks")
"""What a worker would spend seconds on; a name that cannot be loaded is left to the worker."""
_REASON = "its worker process was ended from outside"


@dataclass(frozen=True)
class Processes(Executor):
    """Several processes on this machine. One that is killed is replaced, its task done again."""

    workers: int

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise InputError(f"workers must be at least 1, got {self.workers}")

    def start_loading(self) -> None:
        """Load the libraries for workers to come, beside whatever this process does meanwhile."""
        _fresh_interpreters()
        with _interrupts_held():
            forkserver.ensure_running()

    def at_once(self) -> int:
        """Return the number of processes."""
        return self.workers

    @property
    def shares_files(self) -> bool:
        """They all do."""
        return self.workers > 1

    def map(
        self,
        work: Callable[[Common, Task], Result],
        common: Common,
        tasks: Sequence[Task],
    ) -> Generator[tuple[int, Result]]:
        """Hand the tasks out, and yield them as they finish."""
        waiting, losses = deque(range(len(tasks))), Losses()
        crew = _Crew(work, common)
        try:
            for _ in range(min(self.workers, len(tasks))):
                crew.hire()
            while crew.hand_out(waiting, tasks):
                for place, content in crew.finished():
                    if content is None:
                        losses.add(place, _REASON)
                        waiting.appendleft(place)
                        crew.hire()
                        continue
                    # Before the result is looked at: nobody should wait for that.
                    crew.hand_out(waiting, tasks)
                    yield place, pickle.loads(content).value()
        finally:
            crew.dismiss()


class _Crew:
    """Worker processes, each at the other end of a pipe."""

    def __init__(self, work: Callable[[Any, Any], Any], common: Any) -> None:
        self._work, self._common = work, common
        self._members: dict[Connection, BaseProcess] = {}
        self._busy: dict[Connection, int] = {}

    def hire(self) -> None:
        """Start one more worker."""
        context = _fresh_interpreters()
        ours, theirs = context.Pipe()
        member = context.Process(
            target=_serve, args=(theirs, self._work, self._common, dict(os.environ)), daemon=True
        )
        with _interrupts_held():
            member.start()
            self._members[ours] = member
        # The worker's own end stays open nowhere else, so that its death closes the pipe.
        theirs.close()

    def hand_out(self, waiting: deque[int], tasks: Sequence[Any]) -> bool:
        """Give every idle worker a task, and tell whether anybody is at work."""
        for pipe in self._members:
            if waiting and pipe not in self._busy:
                place = waiting.popleft()
                self._busy[pipe] = place
                try:
                    pipe.send(tasks[place])
                except OSError:
                    # It died while idle; reading from it will say so.
                    continue
        return bool(self._busy)

    def finished(self) -> list[tuple[int, bytes | None]]:
        """Wait for workers; return the places they worked on, with None for those that died."""
        found: list[tuple[int, bytes | None]] = []
        for pipe in wait(list(self._busy)):
            assert isinstance(pipe, Connection)
            place = self._busy.pop(pipe)
            try:
                found.append((place, pipe.recv_bytes()))
            except (EOFError, OSError):
                found.append((place, None))
                self._members.pop(pipe).join()
                pipe.close()
        return found

    def dismiss(self) -> None:
        """End every worker, whatever it is doing: nothing that it holds is lost."""
        with _interrupts_held():
            for member in self._members.values():
                member.terminate()
            for pipe, member in self._members.items():
                member.join()
                pipe.close()


def _fresh_interpreters() -> ForkServerContext:
    """Return what forks workers from a server that has loaded the libraries and run nothing.

    Forking a process that has run threads may hang, and a new interpreter loads them for seconds.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_LOADED_ONCE))
    return context


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C back while workers start: they inherit that, and none dies half awake."""
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


def _serve(
    pipe: Connection, work: Callable[[Any, Any], Any], common: Any, variables: dict[str, str]
) -> None:
    """Do tasks until there are no more. Ctrl-C is left to the parent, which stops the work."""
    # The server has those of the moment when it was started.
    os.environ.clear()
    os.environ.update(variables)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        result = attempt(work, common, task)
        with suppress(OSError):  # nobody is left to read it
            pipe.send_bytes(result)


def _leave_with_parent() -> None:
    """A worker of a killed parent would work on for nobody."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
