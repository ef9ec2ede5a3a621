"""Who does the work: this process, or several. The records are the same, bit for bit."""

from __future__ import annotations

import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from exhume.audit.plan import Plan, Unit
from exhume.audit.trial import Batch, run_unit
from exhume.errors import ExhumeError, InputError


class Executor(ABC):
    """Runs units and yields what they left, in whatever order they finish."""

    @abstractmethod
    def run(
        self, plan: Plan, units: Sequence[Unit], done: frozenset[str]
    ) -> Iterator[tuple[Unit, list[Batch]]]:
        """Run every unit once. Stopping the iteration stops the work."""


@dataclass(frozen=True)
class Serial(Executor):
    """One unit after the other, here."""

    def run(
        self, plan: Plan, units: Sequence[Unit], done: frozenset[str]
    ) -> Iterator[tuple[Unit, list[Batch]]]:
        """Run the units in order."""
        for unit in units:
            yield unit, run_unit(plan, unit, done)


@dataclass(frozen=True)
class Processes(Executor):
    """Several processes on this machine, each with one thread."""

    workers: int

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise InputError(f"workers must be at least 1, got {self.workers}")

    def run(
        self, plan: Plan, units: Sequence[Unit], done: frozenset[str]
    ) -> Iterator[tuple[Unit, list[Batch]]]:
        """Hand the units out, and yield them as they finish."""
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor, as_completed
        from concurrent.futures.process import BrokenProcessPool

        # A fresh interpreter: forking a process that has run threads may hang.
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(self.workers, mp_context=context, initializer=_serve)
        try:
            with _interrupts_held():
                futures = {pool.submit(run_unit, plan, unit, done): unit for unit in units}
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool:
            raise ExhumeError(
                "a worker process was ended from outside (out of memory?); what was finished is "
                "kept: run the same command again, perhaps with fewer --workers"
            ) from None
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C back while workers start: they inherit that, and none dies half awake."""
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


def _serve() -> None:
    """Leave Ctrl-C to the parent, which stops handing out work; don't outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    """A worker of a killed parent would wait for work for ever."""
    import multiprocessing
    import os

    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
