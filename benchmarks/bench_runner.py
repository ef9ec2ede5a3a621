"""The overhead of running trials, and the speedup by a second process.

"trivial" is an audit of ridge regressions by an attack that refuses every release and by the blind
guess: only distributing, scoring and storing remain. Costs per trial are measured after every
worker has delivered once, so that they exclude the start: wall time, the shortest of several
rounds, and processor time of the process that distributes and stores, which bounds the number of
workers it can serve. "real" is a network that is attacked by solving its training map, by one
process and by two in turn. Wall times are meaningful only on an idle machine. "by processor time"
is the speedup on two idle cores: twice the processor time per trial of one process, divided by that
of two.

    python benchmarks/bench_runner.py [--quick]
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import tempfile
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["EXHUME_CACHE"] = "off"

from exhume.audit import Executor, Plan, Processes, Ray, Serial, make_plan, run
from exhume.config import parse

TRIVIAL = """
[[setting]]
name = "trivial"
data = { name = "diabetes", fixed_set = 30, units = "fixed-set" }
release = { model = "ridge", penalty = { strength = 1.0 } }
"""

REAL = """
[[setting]]
name = "real"
data = { name = "fashion-mnist-small", fixed_set = 100 }
release = { model = "mlp", hidden = [10], activation = "elu" }
knowledge = { training = { learning_rate = 0.01, momentum = 0.9, epochs = 20 } }
"""


@dataclass(frozen=True)
class Arrival:
    """Number of finished trials after some seconds, and processor seconds of this process."""

    wall: float
    own: float
    done: int


@dataclass(frozen=True)
class Timed:
    """The times at which trials arrived, and processor seconds of all processes."""

    arrivals: tuple[Arrival, ...]
    processor: float

    def steady(self, workers: int) -> tuple[float, float]:
        """Return seconds and own processor seconds per trial after every worker delivered once."""
        first, last = self.arrivals[workers - 1], self.arrivals[-1]
        trials = last.done - first.done
        return (last.wall - first.wall) / trials, (last.own - first.own) / trials


def timed(plan: Plan, executor: Executor) -> Timed:
    """Run a plan in a temporary folder."""
    arrivals: list[Arrival] = []

    def tell(done: int, total: int) -> None:
        if done:
            arrivals.append(Arrival(time.perf_counter() - started, _processor(_SELF), done))

    with tempfile.TemporaryDirectory() as folder:
        started, before = time.perf_counter(), _processor(_SELF) + _processor(_CHILDREN)
        run(plan, Path(folder) / "run", executor, progress=tell)
    return Timed(tuple(arrivals), _processor(_SELF) + _processor(_CHILDREN) - before)


_SELF, _CHILDREN = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN


def _processor(who: int) -> float:
    """Return processor seconds of this process, or of its children that have ended."""
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def trivial(targets: int, settings: int) -> Plan:
    """Return targets × settings trials of a refusing attack, and as many of the blind guess."""
    tables = [TRIVIAL.replace("trivial", f"trivial {i}") for i in range(settings)]
    text = "\n".join([*tables, f'[audit]\ntargets = {targets}\nattacks = ["scaler-moments"]'])
    return make_plan(parse(text, folder=Path(), source="bench"))


def real(targets: int) -> Plan:
    """Return a plan of trajectory inversion on this many targets."""
    text = f'{REAL}[audit]\ntargets = {targets}\nattacks = ["trajectory-inversion"]\n'
    return make_plan(parse(text, folder=Path(), source="bench"))


def executors() -> list[tuple[str, Executor, int]]:
    """Return every available executor, with its name and its number of workers."""
    found: list[tuple[str, Executor, int]] = [
        ("serial", Serial(), 1),
        ("processes, 2", Processes(2), 2),
    ]
    if find_spec("ray") is not None:
        found.append(("ray, local, 2", Ray("local"), 2))
    return found


def overhead(targets: int, rounds: int) -> None:
    """Print the cost of a trivial trial with each executor."""
    print(f"trivial trials, {4 * targets} of them, {rounds} rounds")
    print("                 start, s   ms / trial   ratio   processor ms in the driver")
    serial = 0.0
    for name, executor, workers in executors():
        runs = [timed(trivial(targets, 2), executor) for _ in range(rounds)]
        start = min(one.arrivals[0].wall for one in runs)
        wall, own = (1000 * min(one.steady(workers)[i] for one in runs) for i in range(2))
        serial = serial or wall
        print(f"  {name:15s} {start:7.1f} {wall:11.2f} {wall / serial:9.2f}  {own:11.2f}")


def scaling(sizes: tuple[int, int], rounds: int) -> None:
    """Print the speedup of two running processes over one."""
    print(f"\nreal trials, {sizes[0]} and {sizes[1]} targets, {rounds} rounds, per target:")
    print("  workers   wall, s   processor, s")
    walls, costs = {}, {}
    for workers in (1, 2):
        runs = [[timed(real(n), Processes(workers)) for n in sizes] for _ in range(rounds)]
        # Every target is attacked and guessed blindly: two trials.
        walls[workers] = min(2 * pair[1].steady(workers)[0] for pair in runs)
        more = [pair[1].processor - pair[0].processor for pair in runs]
        costs[workers] = statistics.median(more) / (sizes[1] - sizes[0])
        print(f"  {workers:7d} {walls[workers]:9.3f} {costs[workers]:14.3f}", flush=True)
    print(f"  two against one: {walls[1] / walls[2]:.2f} by wall time,", end="")
    print(f" {2 * costs[1] / costs[2]:.2f} by processor time")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer trials, one round")
    quick = parser.parse_args().quick
    overhead(200 if quick else 400, 1 if quick else 3)
    scaling((32, 128) if quick else (32, 256), 1 if quick else 2)


if __name__ == "__main__":
    main()
