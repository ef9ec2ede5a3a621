"""Training of many models that differ in one record: our engines against one model at a time.

The network is Balle et al. 2022's for MNIST (784-10-10 ELU, 100 epochs of full-batch descent, rate
0.2, momentum 0.9). The naive way is the usual code: ``nn.Module``, ``torch.optim.SGD``, float32,
one model at a time. It is timed before and after each engine, and each engine's ratio is to the
mean of the two. One thread, processor time. "peak" is the exact model's arithmetic relative to this
machine's matrix product at the folded engine's shapes. The linearised engine does less arithmetic,
so it may exceed 100 %. Errors are ‖error‖ / ‖θᵢ − θ₋‖ against the differences in float64.

    EXHUME_DATA=... python benchmarks/bench_engine.py [--quick]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from exhume.data import load
from exhume.models import MLP
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.records import Records
from exhume.training import SGD, Training
from exhume.training.linearised import Hessian, LinearisedSimulator
from exhume.training.many_mlps import FoldedSimulator
from exhume.training.many_models import BatchedSimulator

CHECKED = 8
Measured = Callable[[], "Run"]


@dataclass(frozen=True)
class Run:
    """Differences of some targets, models per second, and seconds spent once for all of them."""

    differences: FloatArray
    rate: float
    once: float = 0.0


class Setting:
    """A fixed set of MNIST, targets, and the training."""

    def __init__(self, records: int, epochs: int) -> None:
        data = load("mnist").train
        order = np.random.default_rng(0).permutation(len(data))
        self.training = Training(MLP((28, 28), 10), tuple(range(10)), SGD(0.2, 0.9), epochs)
        self.fixed_set = data.take(order[:records])
        targets = data.take(order[records : records + 512])
        self.x, self.y = targets.x, self.training.responses(targets.labels)
        start = time.process_time()
        exact = FoldedSimulator(self.training, self.fixed_set, dtype=torch.float64)
        self.setup = time.process_time() - start
        self.rank = exact.nominal.basis.shape[1]
        self.base, self.reference = (
            exact.base,
            exact.differences(self.x[:CHECKED], self.y[:CHECKED]),
        )

    def error(self, differences: FloatArray) -> FloatArray:
        """Return the relative errors of the first targets' differences."""
        count = min(CHECKED, len(differences))
        reference = self.reference[:count]
        gaps = np.linalg.norm(differences[:count] - reference, axis=1)
        return np.asarray(gaps / np.linalg.norm(reference, axis=1))

    def work(self) -> float:
        """Return an exact model's arithmetic in the first layer, forward and backward."""
        return 4.0 * 10 * 785 * (len(self.fixed_set) + 1) * self.training.epochs


def naive(setting: Setting, models: int) -> Run:
    """Train one model after the other, in float32."""
    training, fixed_set = setting.training, setting.fixed_set
    found, start = [], time.process_time()
    for i in range(models):
        target = Records(setting.x[i : i + 1], setting.y[i : i + 1])
        found.append(_trained(training, fixed_set.with_record(target)))
    return Run(np.array(found) - setting.base, models / (time.process_time() - start))


def _trained(training: Training, data: Records) -> FloatArray:
    module = training.network.build()
    initial = training.initial.draw(training.network, np.random.default_rng(0))
    module.load_state_dict({n: torch.tensor(v, dtype=torch.float32) for n, v in initial.items()})
    x, y = torch.tensor(data.x, dtype=torch.float32), torch.tensor(data.labels).long()
    optimiser = torch.optim.SGD(module.parameters(), lr=0.2, momentum=0.9)
    for _ in range(training.epochs):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(module(x), y).backward()
        optimiser.step()
    return torch.cat([p.detach().flatten() for p in module.parameters()]).double().numpy()


def vmapped(setting: Setting, models: int) -> Run:
    """Train all models at once by ``torch.func.vmap``, in float32."""
    engine = BatchedSimulator(
        setting.training, setting.fixed_set, chunk=models, dtype=torch.float32
    )
    return _timed(engine.differences, setting, models)


def folded(setting: Setting, models: int) -> Run:
    """Compute differences, with the first layers of all models in one matrix product."""
    engine = FoldedSimulator(setting.training, setting.fixed_set)
    engine.differences(setting.x[:1], setting.y[:1])
    run = _timed(engine.differences, setting, models)
    return Run(run.differences, run.rate, setting.setup)


def linearised(setting: Setting, models: int) -> Run:
    """Compute differences to first order; the Hessians are timed separately, as a one-off cost."""
    engine = LinearisedSimulator(setting.training, setting.fixed_set)
    spent, build = [0.0], Hessian.of

    def timed(nominal: object, step: object) -> Hessian:
        start = time.process_time()
        made = build(nominal, step)
        spent[0] += time.process_time() - start
        return made

    Hessian.of = timed
    try:
        start = time.process_time()
        found = engine.differences(setting.x[:models], setting.y[:models])
        seconds = time.process_time() - start
    finally:
        Hessian.of = build
    return Run(found, models / (seconds - spent[0]), setting.setup + spent[0])


def _timed(work: Callable[[Array, Array], FloatArray], setting: Setting, models: int) -> Run:
    start = time.process_time()
    found = work(setting.x[:models], setting.y[:models])
    return Run(found, models / (time.process_time() - start))


def peak(rows: int, rank: int, tile: int) -> float:
    """Return the matrix product's operations per second at the folded engine's two shapes."""
    left, inputs = torch.randn(rows, rank), torch.randn(tile, rank)
    best = float("inf")
    for _ in range(15):
        start = time.process_time()
        for _ in range(10):
            (left @ inputs.T) @ inputs
        best = min(best, (time.process_time() - start) / 10)
    return 4.0 * rows * rank * tile / best


def measure(records: int, epochs: int, counts: tuple[int, int, int, int]) -> None:
    """Print the table of one size."""
    setting = Setting(records, epochs)
    slow, batch, fast, many = counts
    engines: list[tuple[str, Measured]] = [
        ("vmap", lambda: vmapped(setting, batch)),
        ("folded", lambda: folded(setting, fast)),
        ("linearised", lambda: linearised(setting, many)),
    ]
    speed = peak(640, setting.rank, 256)
    print(f"\n{records} records of rank {setting.rank}, {epochs} epochs; {speed / 1e9:.0f} GFLOP/s")
    print("                        models/s  ratio   peak   once, s   error median      max")
    naive(Setting(100, 2), 1)  # warm-up, so that no engine pays for first calls
    before = naive(setting, slow)
    _show("naive", before, before.rate, setting, speed)
    for name, run in engines if many else engines[:2]:
        result = run()
        after = naive(setting, slow)
        _show(name, result, (before.rate + after.rate) / 2, setting, speed)
        before = after


def _show(name: str, run: Run, beside: float, setting: Setting, speed: float) -> None:
    error, share = setting.error(run.differences), run.rate * setting.work() / speed
    print(
        f"  {name:21s} {run.rate:7.2f} {run.rate / beside:6.1f} {share:6.0%} {run.once:9.1f}"
        f" {np.median(error):14.1e} {error.max():8.1e}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="1,000 records, without Hessians")
    parser.add_argument("--records", type=int, action="append", help="default: 1000 and 10000")
    parser.add_argument("--epochs", type=int, default=100)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for records in options.records or ([1000] if options.quick else [1000, 10_000]):
        few = max(1, 4000 // records)
        counts = (few, 2 * few, 64, 0 if options.quick else 256)
        measure(records, options.epochs, counts)


if __name__ == "__main__":
    with threadpool_limits(limits=1):
        main()
