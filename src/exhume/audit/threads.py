"""One thread a process: a result must not depend on how many cores the machine happens to have."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_VARIABLE = "OMP_NUM_THREADS"


@contextmanager
def one_thread() -> Iterator[None]:
    """Hold every numerical library to one thread, and give back what it had.

    Processes work side by side, so nothing is lost by it; threads that fight over cores cost more
    than they bring. A library that is loaded meanwhile starts with one thread and keeps it.
    """
    from threadpoolctl import threadpool_limits

    wanted, torch = os.environ.get(_VARIABLE), sys.modules.get("torch")
    os.environ[_VARIABLE] = "1"
    threads = None if torch is None else torch.get_num_threads()
    if torch is not None:
        torch.set_num_threads(1)
    try:
        with threadpool_limits(limits=1):
            yield
    finally:
        if torch is not None:
            torch.set_num_threads(threads)
        if wanted is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = wanted
