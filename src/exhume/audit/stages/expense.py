"""What an audit spends its time on, and what that costs: each stage names its own expenses."""

from __future__ import annotations

import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from exhume.audit.plan import Plan

if TYPE_CHECKING:
    from exhume.audit.costs import Estimate


@dataclass(frozen=True)
class Cost:
    """Seconds spent once and for each unit, and the largest memory of a process so far (bytes).

    A unit is a trial, a training or a network. ``units`` counts those that this was measured on;
    ``stored`` says that they are an earlier run's, whose ``each`` includes what is spent once.
    """

    once: float
    each: float
    units: int
    memory: int = 0
    stored: bool = False


def stored_cost(seconds: Sequence[float]) -> Cost | None:
    """Return what units of an earlier run cost; None where there are none."""
    return Cost(0.0, sum(seconds) / len(seconds), len(seconds), stored=True) if seconds else None


@dataclass(frozen=True)
class FinishedWork:
    """What a run folder holds: keys of trials, and names of artefacts.

    ``seconds`` are those of trials, by what a trial depends on; ``trained`` those of trainings, by
    setting.
    """

    keys: frozenset[str] = frozenset()
    seconds: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    trained: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    artefacts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Expense(ABC):
    """What one stage does on one setting."""

    setting: int

    @abstractmethod
    def label(self, plan: Plan) -> str:
        """Return its name in the table of ``--plan``: an attack, or anything else in brackets."""

    @abstractmethod
    def left(self, estimate: Estimate) -> int:
        """Return how many units are still to be done."""

    def planned(self, plan: Plan) -> int:
        """Return how many units are counted in all; 0 where they are not counted."""
        return 0

    def cost(self, estimate: Estimate) -> Cost:
        """Return the cost."""
        return estimate.costs[self]

    def seconds(self, estimate: Estimate) -> float:
        """Return how long one worker takes for what is left."""
        cost, left = self.cost(estimate), self.left(estimate)
        return cost.once + left * cost.each if left else 0.0

    def alone(self, estimate: Estimate) -> float:
        """Return how much of that is done before any worker starts."""
        return 0.0

    def longest(self, estimate: Estimate) -> float:
        """Return its share of the longest task: work that only one worker can do."""
        return self.cost(estimate).each if self.left(estimate) else 0.0


class TriedExpense(Expense):
    """An expense whose cost is known from an earlier run in the folder, or found out by trying."""

    @abstractmethod
    def stored(self, plan: Plan, done: FinishedWork) -> Cost | None:
        """Return the cost in an earlier run; None where there was none."""

    @abstractmethod
    def tried(self, plan: Plan) -> Cost:
        """Do a small part of it here, and forget the results."""


def seconds_of(work: Callable[[], object]) -> float:
    """Return how long a call takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


@cache
def start_seconds() -> float:
    """Return how long this process had taken when it was first asked: to start and to import.

    Where the system does not say when it began, its processor time stands for it.
    """
    try:
        # The 22nd field is when it began, in ticks since the system did; names may hold spaces.
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        began = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return float(Path("/proc/uptime").read_text().split()[0]) - began
    except (OSError, ValueError, IndexError):
        return time.process_time()


def peak_memory() -> int:
    """Return the largest memory that this process has had, in bytes."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
