"""The end point of bilevel reconstruction for each start, and the cost of a step.

    EXHUME_DATA=... python benchmarks/bench_bilevel.py [affine] [hidden] [mixture] [paper] [wide]

Pictures come from Fashion-MNIST, odd against even classes; ``paper`` and ``wide`` have the sizes of
Runkel et al. 2024 (3072-1 and 3072-6144-1) and CIFAR-10, animals against vehicles. Labels are
known. Distances of pictures are root mean squares. Seconds are CPU seconds of one thread.
"""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import dataclass

import numpy as np
import torch
from bench_weights_only import pictures

from exhume.attacks.weights_only.bilevel import Bilevel
from exhume.attacks.weights_only.bilevel.hidden import HiddenLevel
from exhume.attacks.weights_only.bilevel.network import NetworkLevel
from exhume.attacks.weights_only.read_weights import HiddenLayer
from exhume.attacks.weights_only.starts import GivenStart, MixedStart, Start, UniformStart
from exhume.data import load
from exhume.models.base import Network
from exhume.models.initialise import Initialisation
from exhume.models.mlp import MLP
from exhume.models.two_layer import TwoLayer
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.records import Records
from exhume.protocol.release import Weights
from exhume.training.stationary import Stationary

ANIMALS = (2, 3, 4, 5, 6, 7)


@dataclass(frozen=True, eq=False)
class Victim:
    """A trained network, its records, and as many from another partition."""

    release: Weights
    knowledge: Knowledge
    data: Records
    other: Records


def victim(network: Network, data: Records, other: Records, decay: float) -> Victim:
    """Train to convergence, as ``Stationary`` does."""
    training = Stationary(network, (0, 1), weight_decay=decay)
    release = training.publish(data, rng=np.random.default_rng(0))
    return Victim(release, known(training, data), data, other)


def known(training: Stationary, data: Records) -> Knowledge:
    return Knowledge(
        record_shape=data.record_shape,
        value_range=(0.0, 1.0),
        training=training,
        labels=data.labels,
    )


def nearest(samples: Array, records: Array) -> FloatArray:
    """Return the distance (n,) from each sample to the nearest of some records."""
    x, y = (a.reshape(len(a), -1) for a in (samples, records))
    squares = (x**2).mean(1)[:, None] + (y**2).mean(1) - 2.0 * (x @ y.T) / x.shape[1]
    return np.sqrt(np.maximum(squares, 0.0)).min(axis=1)


def three_starts(who: Victim, attack: Bilevel) -> None:
    """Print the end points of the paper's three starts."""
    count = len(who.data.labels)
    starts: tuple[tuple[str, Start], ...] = (
        ("ground truth", GivenStart(who.data.x)),
        ("another partition", GivenStart(who.other.x)),
        ("uniform", UniformStart()),
    )
    for name, start in starts:
        begun = time.process_time()
        one = Bilevel(start=start, steps=attack.steps, rate=attack.rate)
        found = one.reconstruct(who.release, who.knowledge, rng=0)
        seconds = time.process_time() - begun
        drawn = start.draw(count, who.data.record_shape, np.random.default_rng(0))
        stats = found.stats
        print(
            f"{name}: distance {stats['initial_distance']:.3g} -> {stats['distance']:.3g} of "
            f"{stats['size']:.3g}; moved {stats['moved']:.4f}; nearest training picture "
            f"{np.median(nearest(found.samples, who.data.x)):.3f}, nearest start "
            f"{np.median(nearest(found.samples, drawn)):.3f}; {seconds:.1f} s, "
            f"{1000 * seconds / one.steps:.0f} ms per step"
        )


def bench_affine() -> None:
    """Measure an affine classifier of 100 pictures."""
    three_starts(victim(MLP((28, 28), 1, hidden=()), *pictures(0, 100), 1e-2), Bilevel())


def bench_hidden() -> None:
    """Measure one hidden layer of 200 ReLUs, with 50 pictures."""
    network = TwoLayer((28, 28), 1, 200, hidden_bias=True, output_bias=True)
    three_starts(victim(network, *pictures(0, 50), 1e-2), Bilevel(steps=80, rate=0.02))


def bench_mixture() -> None:
    """Measure equation 10: 5 × 5 mixtures of truth, another partition and noise, affine size."""
    who = victim(MLP((28, 28), 1, hidden=()), *pictures(0, 100), 1e-2)
    print("λ2 \\ λ1: distance to the nearest training picture / of the other partition / of noise")
    for second in (0.0, 0.25, 0.5, 0.75, 1.0):
        row = []
        for first in (0.0, 0.25, 0.5, 0.75, 1.0):
            start = MixedStart(
                *(GivenStart(who.data.x), GivenStart(who.other.x), UniformStart()),
                first=first,
                second=second,
            )
            found = Bilevel(start=start, steps=100).reconstruct(who.release, who.knowledge, rng=0)
            noise = UniformStart().draw(100, (28, 28), np.random.default_rng(0))
            gaps = [nearest(found.samples, x).mean() for x in (who.data.x, who.other.x, noise)]
            row.append(" / ".join(f"{gap:.3f}"[1:] for gap in gaps))
        print(f"  {second}: " + " | ".join(row))


def _coloured(count: int) -> tuple[Records, Records]:
    """Return training pictures and as many from another partition, animals against vehicles."""
    train = load("cifar-10").train
    order = np.random.default_rng(7).permutation(len(train.labels))[:1000]
    x, y = train.x[order].astype(np.float64), np.isin(train.labels[order], ANIMALS).astype(int)
    parts = slice(0, count), slice(count, 2 * count)
    one, other = (Records(x[part], y[part]) for part in parts)
    return one, other


def bench_paper() -> None:
    """Measure the paper's affine classifier, with 500 pictures."""
    begun = time.process_time()
    who = victim(MLP((32, 32, 3), 1, hidden=()), *_coloured(500), 1e-2)
    print(f"3072-1 trained in {time.process_time() - begun:.0f} s")
    three_starts(who, Bilevel(steps=40, rate=0.02))


def bench_wide() -> None:
    """Measure the paper's hidden layer, with 50 pictures, and the gain from the records' span."""
    begun = time.process_time()
    who = _wide(*_coloured(50))
    print(f"3072-6144-1 trained in {time.process_time() - begun:.0f} s")
    three_starts(who, Bilevel(steps=4, rate=0.03))
    print(f"at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.1f} GB")
    _compare(who)


def _wide(data: Records, other: Records) -> Victim:
    """Train 3072-6144-1 in the span of its records, where it converges anyway."""
    network = TwoLayer((32, 32, 3), 1, 6144, hidden_bias=True, output_bias=True)
    training = Stationary(network, (0, 1), weight_decay=1e-2)
    drawn = Initialisation(seed=0).draw(network, np.random.default_rng(0))
    centre = data.x.mean(axis=0)
    first = np.column_stack([drawn["hidden.weight"], drawn["hidden.bias"]])
    start = HiddenLayer(first, drawn["output.weight"], drawn["output.bias"], centre.ravel(), 2)
    level = HiddenLevel(training, start, torch.tensor(data.labels), steps=40, products=1)
    level.evaluate(torch.tensor((data.x - centre).reshape(len(data.labels), -1)))
    weight, output, bias = (part.numpy() for part in level.trained() if part is not None)
    values = {"hidden.weight": weight[:, :-1], "hidden.bias": weight[:, -1]}
    values |= {"output.weight": output, "output.bias": bias, "centre": centre}
    return Victim(Weights(values), known(training, data), data, other)


def _compare(who: Victim) -> None:
    """Compare one training step and one Hessian product in the records' span and in all pixels."""
    from exhume.attacks.weights_only.read_weights import read_any

    target = read_any(who.release, who.knowledge)
    training = who.knowledge.training
    assert isinstance(target, HiddenLayer)
    assert isinstance(training, Stationary)
    classes = torch.tensor(who.data.labels)
    x = torch.tensor(who.other.x - who.release.parameters["centre"])
    begun = time.process_time()
    HiddenLevel(training, target, classes, steps=1, products=1).evaluate(x.flatten(1))
    inside = time.process_time() - begun
    level = NetworkLevel(training, classes, steps=1, products=1)
    wanted = level.objective.flat({n: who.release.parameters[n] for n in level.objective.shapes})
    begun = time.process_time()
    level.hypergradient(x, level.train(x, wanted), wanted)
    outside = time.process_time() - begun
    print(
        f"one step of training and one Hessian product: {inside:.2f} s in the records' span, "
        f"{outside:.2f} s in all pixels; at most "
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.1f} GB"
    )


def main() -> None:
    torch.set_num_threads(1)
    parts = {
        "affine": bench_affine,
        "hidden": bench_hidden,
        "mixture": bench_mixture,
        "paper": bench_paper,
        "wide": bench_wide,
    }
    for name in sys.argv[1:] or list(parts):
        print(f"== {name}")
        parts[name]()


if __name__ == "__main__":
    main()
