"""A Ray cluster of several nodes on this machine, each with its own loopback address."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

_STORE = 80 * 2**20


class Nodes:
    """A head that does no work, and nodes of one CPU each, which may be removed.

    The first node claims to have a GPU.
    """

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self._cluster = Cluster(initialize_head=True, head_node_args=_node(2, cpus=0))
        self._next, self._workers = 3, []

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def add(self) -> None:
        has_gpu = not self._workers and self._next == 3
        node = self._cluster.add_node(**_node(self._next, cpus=1), num_gpus=int(has_gpu))
        self._workers.append(node)
        self._next += 1

    def remove(self, worker: int) -> None:
        """Kill the node of a process with all its processes, like a power failure."""
        for node in self._workers:
            (raylet,) = node.all_processes["raylet"]
            workers = _children(raylet.process.pid)
            if worker in workers:
                break
        else:
            raise AssertionError(f"process {worker} works on no node")
        self._workers.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)
        for pid in workers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        self._cluster.shutdown()


def device(common: str, task: int) -> str:
    """Return the GPU that the task was given."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", common)


def _children(parent: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == parent:
                found.append(int(entry.name))
    return found


def _node(number: int, *, cpus: int) -> dict[str, Any]:
    return {
        "num_cpus": cpus,
        "object_store_memory": _STORE,
        "include_dashboard": False,
        "node_ip_address": f"127.0.0.{number}",
    }


@contextmanager
def nodes(count: int) -> Iterator[Nodes]:
    """Start a cluster with ``count`` working nodes; remove it completely afterwards."""
    folder = tempfile.mkdtemp(prefix="xr-")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        # A machine that is busy with other tests starts workers slowly; that is not a failure.
        patch.setenv("RAY_worker_register_timeout_seconds", "300")
        patch.setenv("RAY_health_check_timeout_ms", "60000")
        # Nor are workers to be killed where other tests take most of the memory.
        patch.setenv("RAY_memory_monitor_refresh_ms", "0")
        started = Nodes()
        try:
            for _ in range(count):
                started.add()
            yield started
        finally:
            started.close()
            shutil.rmtree(folder, ignore_errors=True)
