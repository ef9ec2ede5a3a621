"""The costs of the papers' studies on a cluster, from unit costs measured on this machine.

A unit (a shadow model, a step of an attack, a step of training) is measured as the difference
between a long and a short run, in processor seconds on one thread. Counts are the papers': Balle et
al. 2022, §V (MNIST: 59,000 shadow models and 1,000 targets, with the fixed set of 1,000 of its
ablation); Liu et al. 2024, appendix (ResNet-18, 200 epochs of CIFAR-10 in batches of 64; attacks
of 10,000 steps, here on a batch of 4). Random pictures replace the data: the arithmetic takes
equally long.

    python benchmarks/paper_costs.py
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from exhume.attacks import Geiping
from exhume.models import MLP
from exhume.models.resnet import ResNet
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.records import Records
from exhume.training import SGD, Training
from exhume.training.gradient import GradientStep
from exhume.training.many_mlps import FoldedSimulator

CLASSES = tuple(range(10))
_RESNET_18 = ResNet((32, 32, 3), 10)


@dataclass(frozen=True)
class Part:
    """A number of units of one kind within a study."""

    study: str
    unit: str
    count: int
    seconds: float


def unit(work: Callable[[int], object], short: int, long: int) -> float:
    """Return the processor seconds of one unit of ``work``, called with the number of units."""
    spent = []
    for count in (short, long):
        start = time.process_time()
        work(count)
        spent.append(time.process_time() - start)
    return (spent[1] - spent[0]) / (long - short)


def pictures(count: int, shape: tuple[int, ...]) -> Records:
    rng = np.random.default_rng(0)
    return Records(rng.uniform(size=(count, *shape)), rng.integers(10, size=count))


def shadow_model() -> float:
    """Return the time of one 784-10-10 model, 1,000 records and 100 epochs, 64 at a time."""
    data = pictures(1_000 + 192, (28, 28))
    training = Training(MLP((28, 28), 10), CLASSES, SGD(0.2, 0.9), epochs=100)
    engine = FoldedSimulator(training, data.take(slice(0, 1_000)))
    targets = data.take(slice(1_000, None))
    y = training.responses(targets.labels)
    return unit(lambda n: engine.differences(targets.x[:n], y[:n]), 64, 192)


def attack_step() -> float:
    """Return the time of one step of gradient matching on a batch of 4."""
    step = GradientStep(_RESNET_18, CLASSES)
    batch = pictures(4, (32, 32, 3))
    release = step.publish(batch, rng=np.random.default_rng(0))
    known = Knowledge(
        record_shape=(32, 32, 3), value_range=(0.0, 1.0), training=step, labels=batch.labels
    )

    def attack(steps: int) -> None:
        Geiping(steps=steps, continuation=False).reconstruct(release, known, rng=0)

    return unit(attack, 1, 4)


def training_step() -> float:
    """Return the time of one step of training on a batch of 64."""
    module = _RESNET_18.build()
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    batch = pictures(64, (32, 32, 3))
    x, y = torch.tensor(batch.x, dtype=torch.float32), torch.tensor(batch.labels)

    def train(steps: int) -> None:
        for _ in range(steps):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(module(x), y).backward()
            optimiser.step()

    return unit(train, 1, 3)


def parts() -> Iterator[Part]:
    steps = 200 * -(-50_000 // 64)
    yield Part("Balle et al. 2022, MNIST", "shadow model", 59_000 + 1_000, shadow_model())
    yield Part("Liu et al. 2024, one victim trained", "step", steps, training_step())
    yield Part("Liu et al. 2024, one attack on one batch", "step", 10_000, attack_step())


def main() -> None:
    print("| study | unit | processor seconds each | how many | core hours |")
    print("|---|---|---|---|---|")
    for part in parts():
        hours = part.count * part.seconds / 3600
        print(
            f"| {part.study} | {part.unit} | {part.seconds:.2g} | {part.count:,} | {hours:.2g} |",
            flush=True,
        )


if __name__ == "__main__":
    torch.set_num_threads(1)
    with threadpool_limits(limits=1):
        main()
