"""Learned attacks on the paper's MNIST model: kernel ridge against the reconstructor network φ.

Targets are held out. The model is Balle et al. 2022's (784-10-10, ELU, full-batch descent at 0.2
with momentum .9, 100 epochs) on a fixed set of 1,000. The table shows mean squared errors of pixels
in [0, 1], with processor seconds on one thread. "oracle" is each target's nearest record in the
fixed set and shadow targets, "mean" the shadow targets' mean image. Shadow models are trained once
and stored in a folder that is deleted at the end (or in $EXHUME_CACHE with --keep).

``--study`` takes the fixed set and the shadow targets of ``exhume study balle2022 default --scale
paper``, whose shadow models it then shares. ``--first-order`` trains shadow models to first order
even where they are too few to be worth their Hessians. Targets are always trained exactly.

    python benchmarks/bench_reconstructor.py [--shadows 100 500 1000 3000] [--attacks ridge]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from exhume.attacks.informed.learned import Reconstructor
from exhume.attacks.informed.learned.ridge import Ridge
from exhume.data import load, split_records
from exhume.models import MLP
from exhume.protocol.attack import Attack
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.records import Records
from exhume.protocol.release import Release
from exhume.shadows import first_order, order_for, shadows_of
from exhume.training import SGD, Training

ATTACKS: dict[str, Attack] = {"ridge": Ridge(shadows=10**6), "reconstructor": Reconstructor()}


@dataclass(frozen=True, eq=False)
class Bench:
    """One split of MNIST, and the release of each target."""

    training: Training
    fixed_set: Records
    shadows: Records
    targets: Records
    releases: Sequence[Release]

    def knowledge(self, count: int) -> Knowledge:
        return Knowledge(
            record_shape=(28, 28),
            value_range=(0.0, 1.0),
            training=self.training,
            fixed_set=self.fixed_set,
            shadow_targets=self.shadows.take(np.arange(count)),
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shadows", type=int, nargs="+", default=[100, 500, 1000])
    parser.add_argument("--attacks", nargs="+", default=list(ATTACKS), choices=list(ATTACKS))
    parser.add_argument("--targets", type=int, default=100)
    parser.add_argument("--fixed", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=0.2)
    parser.add_argument("--keep", action="store_true", help="keep shadow models in $EXHUME_CACHE")
    parser.add_argument("--epochs", type=int, default=100, help="of φ; it may stop before")
    parser.add_argument("--study", action="store_true", help="the split of the paper's study")
    parser.add_argument("--first-order", action="store_true", help="however few models there are")
    options = parser.parse_args()
    if options.first_order:
        first_order.WORTH = 0.0
    ATTACKS["reconstructor"] = Reconstructor(shadows=10**6, epochs=options.epochs)
    with tempfile.TemporaryDirectory() as folder:
        if not options.keep:
            os.environ["EXHUME_CACHE"] = folder
        bench = split(options)
        print(f"MNIST, fixed set {options.fixed}, learning rate {options.rate}, one thread")
        heads = "".join(f"{name:>14s}   (s)" for name in options.attacks)
        print(f"shadows   oracle     mean{heads}   training shadows (s)", flush=True)
        for count in options.shadows:
            for cell in cells(bench, count, options.attacks):
                print(cell, end="", flush=True)
            print()


def split(options: argparse.Namespace) -> Bench:
    """Draw disjoint parts and publish each target's model by the plain loop in float32."""
    most = max(options.shadows)
    if options.study:
        loaded = load("mnist")
        assert loaded.test is not None
        both = (loaded.train, loaded.test)
        x, y = np.concatenate([p.x for p in both]), np.concatenate([p.labels for p in both])
        sizes = {"fixed_set": options.fixed, "shadow_targets": most, "targets": options.targets}
        found = split_records(Records(x, y), **sizes, seed=0)
        parts = [found.fixed_set, found.targets, found.shadow_targets]
    else:
        data = load("mnist").train
        ends = np.cumsum([options.fixed, options.targets, most])
        order = np.random.default_rng(0).permutation(len(data))
        parts = [data.take(part) for part in np.split(order, ends)[:3]]
    training = Training(MLP((28, 28), 10), tuple(range(10)), SGD(options.rate, 0.9), epochs=100)
    streams = [np.random.default_rng(i) for i in range(options.targets)]
    releases = training.publish_each(parts[0], parts[1], rngs=streams)
    return Bench(training, parts[0], parts[2], parts[1], releases)


def cells(bench: Bench, count: int, names: Sequence[str]) -> Iterator[str]:
    """Measure one number of shadow models; what is measured is shown at once."""
    knowledge = bench.knowledge(count)
    started = time.process_time()
    order = order_for(bench.releases[0], knowledge, layers=None, most=count)
    assert not isinstance(order, str), order
    shadows_of(order)
    trained = time.process_time() - started
    truth = bench.targets.x.reshape(len(bench.targets), -1).astype(np.float64)
    pool = knowledge.pool().reshape(-1, truth.shape[1])
    squares = np.square(truth).sum(1)[:, None] + np.square(pool).sum(1) - 2 * truth @ pool.T
    oracle = float(squares.min(axis=1).mean() / truth.shape[1])
    mean = float(np.square(pool[-count:].mean(axis=0) - truth).mean())
    yield f"{count:7d} {oracle:8.4f} {mean:8.4f}"
    for name in names:
        error, seconds = attacked(ATTACKS[name], bench, knowledge, truth)
        yield f"{error:14.4f} {seconds:5.1f}"
    yield f"{trained:15.1f}"


def attacked(
    attack: Attack, bench: Bench, knowledge: Knowledge, truth: np.ndarray
) -> tuple[float, float]:
    """Return the mean squared error over the targets, and the seconds it took."""
    streams = [np.random.default_rng(i) for i in range(len(truth))]
    started = time.process_time()
    found = attack.reconstruct_each(bench.releases, [knowledge] * len(truth), rngs=streams)
    seconds = time.process_time() - started
    samples = np.array([one.samples[0].reshape(-1) for one in found])
    return float(np.square(samples - truth).mean()), seconds


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    with threadpool_limits(limits=1):
        main()
