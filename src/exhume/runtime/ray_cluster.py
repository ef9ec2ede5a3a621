"""A Ray cluster: many machines, or this one."""

from __future__ import annotations

import ipaddress
import logging
import os
import pickle
import platform
import secrets
import shutil
import socket
import sys
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from exhume.protocol.errors import InputError
from exhume.runtime.executor import Common, Executor, Losses, Result, Task, attempt
from exhume.runtime.versions import versions

LOCAL = "local"
_REASON = "its Ray worker or its node was lost"
_INSTALL = "pip install 'exhume[ray]'"
_ANSWER_SECONDS = 10.0
_LOOK_SECONDS = 1.0
_PATIENCE_SECONDS = 60.0
_INHERITED = ("EXHUME_DATA", "EXHUME_CACHE", "EXHUME_CACHE_LIMIT")
"""Environment variables that a node takes from the driver, unless it has its own."""


@dataclass(frozen=True)
class Ray(Executor):
    """A Ray cluster at ``address`` (``host:port``), or a private one here (``local``).

    At most ``workers`` tasks are submitted at once; 0 means as many as keep every CPU busy. Each
    task takes ``cpus`` CPUs and ``gpus`` GPUs of a node; fractions are allowed. This process writes
    the records and must keep running; workers and nodes may join and leave.
    """

    address: str = LOCAL
    workers: int = 0
    cpus: float = 1.0
    gpus: float = 0.0

    def __post_init__(self) -> None:
        if self.workers < 0:
            raise InputError(f"workers must be 0 (all CPUs) or more, got {self.workers}")
        if not self.cpus > 0 or self.gpus < 0:
            raise InputError(f"cpus must be positive, gpus not negative: {self.cpus}, {self.gpus}")
        if self.address != LOCAL:
            _host_and_port(self.address)
        if find_spec("ray") is None:
            raise InputError(f"Ray is not installed: {_INSTALL}")

    def at_once(self) -> int:
        """Return how many tasks the cluster's CPUs can run now, but at most ``workers``."""
        if self.address == LOCAL:
            return self.workers or _cores()
        ray = _imported()
        with self._connection(ray):
            room = max(1, int(ray.cluster_resources().get("CPU", 0.0) / self.cpus))
        return min(self.workers or room, room)

    @property
    def shares_files(self) -> bool:
        """True on one machine; on several machines only if a shared folder is set."""
        return self.address == LOCAL or "EXHUME_CACHE" in os.environ

    def map(
        self,
        work: Callable[[Common, Task], Result],
        common: Common,
        tasks: Sequence[Task],
    ) -> Generator[tuple[int, Result]]:
        """Distribute the tasks over the cluster, and yield them as they finish."""
        ray = _imported()
        if not tasks:
            return
        with self._connection(ray) as stays:
            shift = _Shift(ray, self, work, common)
            try:
                yield from shift.results(tasks)
            finally:
                # A connection that closes ends its tasks; Ray 2.60 may crash where a task is
                # cancelled in the moment in which it is answered.
                if stays:
                    shift.end()

    @contextmanager
    def _connection(self, ray: ModuleType) -> Iterator[bool]:
        """Connect to the cluster; tell whether this process has a connection that stays open."""
        if ray.is_initialized():
            here = ray.get_runtime_context().gcs_address
            if here != self.address:
                raise InputError(
                    f"this process is already connected to the Ray cluster at {here}, not to "
                    f"{self.address}"
                )
            yield True
            return
        try:
            with _private_cluster(ray, self) if self.address == LOCAL else _joined(ray, self):
                yield False
        finally:
            ray.shutdown()


class _Shift:
    """The submitted tasks of a cluster, and their outcomes."""

    def __init__(
        self, ray: ModuleType, executor: Ray, work: Callable[[Any, Any], Any], common: Any
    ) -> None:
        self._ray, self._executor, self._work = ray, executor, work
        # We retry ourselves: Ray would retry forever if memory does not suffice.
        options = ray.remote(num_cpus=executor.cpus, num_gpus=executor.gpus, max_retries=0)
        self._remote, self._driver = options(_attempt_there), _driver()
        self._shared, self._common = common, ray.put(common)
        self._running: dict[Any, int] = {}
        self._room, self._looked, self._progressed, self._warned = 0, 0.0, time.monotonic(), False

    def results(self, tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Yield every task's place and result."""
        waiting, losses, errors = deque(range(len(tasks))), Losses(), self._ray.exceptions
        while waiting or self._running:
            while waiting and len(self._running) < self._at_once():
                place = waiting.popleft()
                self._running[self._submitted(tasks[place])] = place
            ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=_LOOK_SECONDS)
            self._watch(bool(ready))
            for reference in ready:
                place = self._running.pop(reference)
                try:
                    content = self._ray.get(reference)
                except errors.RayError as error:
                    if isinstance(error, errors.RayTaskError):
                        if not isinstance(error, errors.ObjectLostError):
                            raise  # our own few lines around the work went wrong there
                        # Where a node lost sight of what all tasks share, it is sent again.
                        self._common = self._ray.put(self._shared)
                    losses.add(place, _REASON)
                    waiting.appendleft(place)
                    continue
                yield place, pickle.loads(content).value()

    def _submitted(self, task: Any) -> Any:
        return self._remote.remote(self._driver, self._work, self._common, task)

    def end(self) -> None:
        """Cancel all running tasks, and wait until they have ended.

        Ray may lose the word where a worker is just being given the task: then it is said again.
        """
        cut, until = list(self._running), time.monotonic() + _ANSWER_SECONDS
        self._running.clear()
        while cut and time.monotonic() < until:
            for reference in cut:
                self._ray.cancel(reference, force=True)
            _, cut = self._ray.wait(cut, num_returns=len(cut), timeout=_LOOK_SECONDS)

    def _at_once(self) -> int:
        """The number of tasks to submit: twice what the cluster's CPUs can run now."""
        if self._executor.workers:
            return self._executor.workers
        if time.monotonic() - self._looked > _LOOK_SECONDS:
            cpus = self._ray.cluster_resources().get("CPU", 0.0)
            self._room = max(2, 2 * int(cpus / self._executor.cpus))
            self._looked = time.monotonic()
        return self._room

    def _watch(self, progressed: bool) -> None:
        """Warn once if no node has the resources that a task needs."""
        now = time.monotonic()
        if progressed:
            self._progressed = now
        elif not self._warned and now - self._progressed > _PATIENCE_SECONDS:
            have = self._ray.cluster_resources()
            need = self._executor
            if have.get("CPU", 0.0) < need.cpus or have.get("GPU", 0.0) < need.gpus:
                self._warned = True
                warnings.warn(
                    f"no node of the cluster at {need.address} has {need.cpus:g} CPUs and "
                    f"{need.gpus:g} GPUs for a task: waiting for one",
                    stacklevel=2,
                )


@dataclass(frozen=True)
class Driver:
    """What workers take from the driver, or must have in common with it."""

    versions: Mapping[str, str]
    environment: Mapping[str, str]


def _driver() -> Driver:
    found = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return Driver(versions(), found)


def _attempt_there(
    driver: Driver, work: Callable[[Any, Any], Any], common: Any, task: Any
) -> bytes:
    """Run a task on a node, if its results would be the same as here."""
    for name, value in driver.environment.items():
        os.environ.setdefault(name, value)
    return attempt(work if versions() == driver.versions else _refused, common, task)


def _refused(common: Any, task: Any) -> None:
    raise InputError(
        f"node {platform.node()} has other versions than the process that started the audit: "
        f"{versions()}; install the same ones on every node"
    )


def _imported() -> ModuleType:
    # By default, Ray sends usage reports for every cluster.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    return ray


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InputError(
            "a Ray address is 'local' or the host:port of a cluster's head node (default port "
            f"6379), got {address!r}"
        )
    return host.strip("[]"), int(port)


@contextmanager
def _joined(ray: ModuleType, executor: Ray) -> Iterator[None]:
    """Connect to a running cluster, from one of its machines."""
    host, port = _host_and_port(executor.address)
    try:
        socket.create_connection((host, port), timeout=_ANSWER_SECONDS).close()
    except OSError as error:
        raise InputError(f"no Ray cluster answers at {executor.address}: {error}") from None
    try:
        # Ray would look for a loopback cluster under this machine's name in the network.
        own = host if _loopback(host) else None
        ray.init(address=executor.address, _node_ip_address=own, **_QUIET)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        reason = " ".join(str(error).split())[:300]
        raise InputError(
            f"the Ray cluster at {executor.address} cannot be used: {reason}"
        ) from None
    yield


_QUIET: Mapping[str, Any] = {
    "log_to_driver": False,
    "configure_logging": False,
    "logging_level": "error",
}


@contextmanager
def _private_cluster(ray: ModuleType, executor: Ray) -> Iterator[None]:
    """Start a cluster on this machine only, with its own token, and leave no files."""
    # Ray's socket paths are 65 characters longer, and must not exceed 107.
    place = tempfile.gettempdir()
    folder = tempfile.mkdtemp(prefix="exhume-ray-", dir=place if len(place) < 22 else "/tmp")
    count = executor.workers or _cores()
    # On other systems Ray uses the loopback address by default.
    own = "127.0.0.2" if sys.platform == "linux" else None
    before = {name: os.environ.get(name) for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN")}
    # Without a token in the environment Ray would write one into the user's home.
    os.environ["RAY_AUTH_TOKEN"] = _token()
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        ray.init(
            address=LOCAL,
            num_cpus=max(1, round(count * executor.cpus)),
            include_dashboard=False,
            _temp_dir=folder,
            _node_ip_address=own,
            **_QUIET,
        )
        yield
    finally:
        ray.shutdown()
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        _remove(folder)


def _remove(folder: str) -> None:
    """Remove the cluster's files, and those that a process still writes that was told to end."""
    until = time.monotonic() + _ANSWER_SECONDS
    while Path(folder).exists() and time.monotonic() < until:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.01)


def _cores() -> int:
    return len(os.sched_getaffinity(0))


@lru_cache(maxsize=1)
def _token() -> str:
    """One token per process: Ray reads it once."""
    return secrets.token_hex(32)


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
