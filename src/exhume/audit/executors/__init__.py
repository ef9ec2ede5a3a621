"""Who does the work: this process, several of them, or a Ray cluster. The records are the same."""

from exhume.audit.executors.base import Executor, WorkerLostError
from exhume.audit.executors.processes import Processes
from exhume.audit.executors.ray_cluster import Ray
from exhume.audit.executors.serial import Serial

__all__ = ["Executor", "Processes", "Ray", "Serial", "WorkerLostError"]
