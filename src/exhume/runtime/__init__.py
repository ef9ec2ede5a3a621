"""Executors: this process, several processes, or a Ray cluster. The records are the same."""

from exhume.runtime.executor import Executor, WorkerLostError
from exhume.runtime.processes import Processes
from exhume.runtime.ray_cluster import Ray
from exhume.runtime.serial import Serial

__all__ = ["Executor", "Processes", "Ray", "Serial", "WorkerLostError"]
