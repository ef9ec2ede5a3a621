"""One thread per process: a result must not depend on the number of cores."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_VARIABLE = "OMP_NUM_THREADS"


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit every numerical library to one thread, and restore the previous number.

    Processes run in parallel, so this loses nothing, and threads that compete for cores are slower.
    A library that is loaded meanwhile starts with one thread and keeps it.
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
