"""Gradient matching on CIFAR-10: PSNR next to that of the mean colour, and the cost of a step.

All figures of a table come from one run, on one thread; times are processor times. "mean colour" is
the PSNR of an adversary who knows only each image's mean colour. The last column compares a step of
the loop with the bare double backward pass of the same network and batch. Images come from the test
set, from ``--first`` on, with different labels; labels are known.

    EXHUME_DATA=... python benchmarks/bench_matching.py
    EXHUME_DATA=... python benchmarks/bench_matching.py --victim resnet --batch 4 --rounds 3
    EXHUME_DATA=... python benchmarks/bench_matching.py --victim resnet --batch 4 --ablation
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import torch

from exhume.attacks import Attack
from exhume.attacks.gradients.matching import DLG, Geiping, LiuMatching
from exhume.attacks.gradients.matching.objectives import Cosine
from exhume.attacks.gradients.matching.problem import MatchableRelease, problem_of, read
from exhume.data import load
from exhume.models.convnet import ConvNet
from exhume.models.lenet import LeNet
from exhume.models.resnet import ResNet
from exhume.protocol.arrays import FloatArray
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.records import Records
from exhume.protocol.release import Gradient
from exhume.training.batch_statistics import batch_statistics
from exhume.training.gradient import GradientStep
from exhume.training.warm_up import train_a_little

SHAPE, CLASSES = (32, 32, 3), tuple(range(10))
VICTIMS = ("lenet", "convnet", "resnet")
SEEDS = 3
"""Number of seeds, both for the networks' parameters and for the attack."""


@dataclass(frozen=True)
class Measured:
    """One batch: PSNR of each image and of its mean colour, seconds, and the attack's status."""

    psnr: FloatArray
    colour: FloatArray
    seconds: float
    status: str


def main() -> None:
    torch.set_num_threads(1)
    options = parsed()
    data = load("cifar-10")
    assert data.test is not None
    print("victim   attack       B     PSNR mean  [min - max]   mean colour   CPU-s   step  status")
    for victim in VICTIMS if options.victim == "all" else (options.victim,):
        count = options.batch or {"lenet": 1, "convnet": 4, "resnet": 1}[victim]
        named = attacks(victim, count, options)
        rows: dict[str, list[Measured]] = {name: [] for name in named}
        ratio = 0.0
        for number, seed in runs(options):
            batch = different(data.test, options.first + 40 * number, count)
            step = build(victim, seed, options)
            ratio = ratio or step_cost(step, batch)
            for name, attack in named.items():
                rows[name].append(measured(attack, step, batch, seed))
                if options.each:
                    each(name, number, seed, rows[name][-1])
        for name in named:
            show(victim, name, count, rows[name], ratio)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--victim", choices=(*VICTIMS, "all"), default="all")
    add("--batch", type=int, help="records per batch (default: 1, 4, 1)")
    add("--rounds", type=int, default=1, help="number of batches; the three seeds alternate")
    add("--every-seed", action="store_true", help="run each batch with each of the three seeds")
    add("--first", type=int, default=1000, help="first image in the test set")
    add("--steps", type=int, help="steps, instead of the attack's own number")
    add("--width", type=int, default=16, help="width of the ResNet: 64 is the usual one")
    add("--trained", type=int, default=300, help="training steps of the ResNet")
    add("--plain", action="store_true", help="also run Geiping without continuation")
    add("--geiping", type=float, metavar="SECONDS", help="Geiping on the ResNet, for this time")
    add("--ablation", action="store_true", help="LiuMatching without each part, and Geiping")
    add("--keep", type=Path, help="folder for trained networks, which later runs reuse")
    add("--each", action="store_true", help="print a line for each run")
    return parser.parse_args()


def runs(options: argparse.Namespace) -> list[tuple[int, int]]:
    """Return batch and seed of every run; the first ``rounds`` runs have all batches."""
    turns = range(SEEDS if options.every_seed else 1)
    return [(number, (number + turn) % SEEDS) for turn in turns for number in range(options.rounds)]


def attacks(victim: str, count: int, options: argparse.Namespace) -> dict[str, Attack]:
    steps = options.steps
    if victim == "lenet":
        return {"dlg": DLG(steps=steps or 15)}
    if victim == "convnet":
        found: dict[str, Attack] = {"geiping": Geiping(steps=steps or 600)}
        if options.plain:
            published = Geiping(steps=steps or 600, continuation=False, total_variation=1e-2)
            found["plain"] = published
        return found
    if options.geiping:
        return {"geiping": Geiping(steps=fitting(options, count))}
    whole = LiuMatching(steps=steps or (220 if count == 1 else 1000))
    if not options.ablation:
        return {"liu": whole}
    return {
        "liu": whole,
        "no-weights": replace(whole, reweighting=False),
        "no-prior": replace(whole, deep_image_prior=False),
        "no-features": replace(whole, feature_matching=False),
        "no-bn": replace(whole, batch_norm=0.0),
        # About the same time: its steps do not generate images by a U-Net.
        "geiping": Geiping(steps=round(1.3 * whole.steps)),
    }


def fitting(options: argparse.Namespace, count: int) -> int:
    """Return the number of steps of Geiping's attack within the seconds, timed on another batch."""
    test = load("cifar-10").test
    assert test is not None
    batch, step = different(test, 0, count), build("resnet", 0, options)
    times = [measured(Geiping(steps=n), step, batch, 0).seconds for n in (10, 10, 60)]
    return int(10 + 50 * (options.geiping - times[1]) / (times[2] - times[1]))


@cache
def trained(seed: int, width: int, steps: int, keep: Path | None) -> GradientStep:
    """Return the ResNet after some steps; the next run reloads it from ``keep``."""
    resnet = ResNet(SHAPE, 10, width=width)
    file = None if keep is None else keep / f"resnet-{width}-{steps}-{seed}.npz"
    if file is not None and file.exists():
        with np.load(file) as kept:
            arrays = dict(kept)
    else:
        state = train_a_little(resnet, load("cifar-10").train, steps, seed=seed)
        print(
            f"# {resnet.describe()}, {steps} steps: {100 * state.accuracy:.0f}% right", flush=True
        )
        arrays = {**state.parameters, **state.buffers}
        if file is not None:
            np.savez(file, **arrays)
    own = resnet.parameter_shapes()
    parameters = {name: arrays[name] for name in own}
    buffers = {name: array for name, array in arrays.items() if name not in own}
    return GradientStep(resnet, CLASSES, state=parameters, buffers=buffers)


def build(victim: str, seed: int, options: argparse.Namespace | None = None) -> GradientStep:
    if victim == "lenet":
        network = LeNet(SHAPE, 10)
        state = network.uniform_parameters(np.random.default_rng(seed))
        return GradientStep(network, CLASSES, state=state)
    if victim == "convnet":
        # PyTorch's own initialisation, as most untrained networks have.
        convnet = ConvNet(SHAPE, 10)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = convnet.build()
        drawn = {n: p.detach().numpy() for n, p in module.named_parameters()}
        return GradientStep(convnet, CLASSES, state=drawn)
    assert options is not None
    return trained(seed, options.width, options.trained, options.keep)


def different(records: Records, first: int, count: int) -> Records:
    seen: dict[int, int] = {}
    for index in range(first, len(records)):
        seen.setdefault(int(records.labels[index]), index)
    if len(seen) < count:
        raise SystemExit(f"fewer than {count} classes from image {first} on, of {len(records)}")
    return records.take(list(seen.values())[:count])


def known(step: GradientStep, batch: Records) -> Knowledge:
    normed = step.buffers is not None
    return Knowledge(
        record_shape=SHAPE,
        value_range=(0.0, 1.0),
        training=step,
        labels=batch.y,
        batch_norm=batch_statistics(step, batch) if normed else None,
    )


def measured(attack: Attack, step: GradientStep, batch: Records, seed: int) -> Measured:
    release = step.publish(batch, rng=np.random.default_rng(seed))
    knowledge = known(step, batch)
    start = time.process_time()
    found = attack.reconstruct(release, knowledge, rng=seed)
    seconds = time.process_time() - start
    return Measured(psnr(batch, found.samples), mean_colour(batch), seconds, found.status.name)


def psnr(batch: Records, samples: FloatArray) -> FloatArray:
    """Return the PSNR of each image under the best assignment of samples."""
    from scipy.optimize import linear_sum_assignment

    costs = np.square(batch.x.astype(np.float64)[:, None] - samples[None]).mean(axis=(2, 3, 4))
    return -10 * np.log10(costs[linear_sum_assignment(costs)])


def mean_colour(batch: Records) -> FloatArray:
    truth = batch.x.astype(np.float64)
    error = np.square(truth - truth.mean(axis=(1, 2), keepdims=True))
    return -10 * np.log10(error.mean(axis=(1, 2, 3)))


def step_cost(step: GradientStep, batch: Records, repeats: int = 12) -> float:
    """Return the time ratio of the loop's evaluation to the bare double backward pass."""
    release = step.publish(batch, rng=np.random.default_rng(0))
    assert isinstance(release, Gradient)
    reading = read(release, known(step, batch))
    assert isinstance(reading, MatchableRelease)
    problem = problem_of(reading, Cosine(), labels=batch.y, precision="float32")
    assert problem.labels is not None
    module = problem.simulation.objective.module
    leaves = [p for p in module.parameters() if p.requires_grad]
    planes = torch.tensor(batch.x).movedim(-1, 1).contiguous().requires_grad_(True)

    def bare() -> None:
        scores = module(planes.movedim(1, -1))
        loss = torch.nn.functional.cross_entropy(scores, problem.labels)
        slopes = torch.autograd.grad(loss, leaves, create_graph=True)
        pairs = zip(slopes, targets, strict=True)
        torch.autograd.grad(sum((g * t).sum() for g, t in pairs), planes)

    def loop() -> None:
        total, _ = problem.losses(planes.movedim(1, -1), problem.labels)
        torch.autograd.grad(total, planes)

    targets = problem.released.values
    times = {bare: 0.0, loop: 0.0}
    for number in range(repeats + 2):
        for work in (bare, loop):
            begun = time.process_time()
            work()
            if number >= 2:
                times[work] += time.process_time() - begun
    return times[loop] / times[bare]


def each(name: str, number: int, seed: int, row: Measured) -> None:
    print(
        f"  {name} batch {number} seed {seed}: {row.psnr.mean():.2f} dB, worst "
        f"{row.psnr.min():.2f}, mean colour {row.colour.mean():.2f}, {row.seconds:.1f} CPU-s, "
        f"{row.status}",
        flush=True,
    )


def show(victim: str, name: str, count: int, rows: list[Measured], ratio: float) -> None:
    psnr = np.concatenate([row.psnr for row in rows])
    colour = np.concatenate([row.colour for row in rows])
    spread = f"[{psnr.min():5.1f} -{psnr.max():6.1f}]"
    seconds = np.mean([row.seconds for row in rows])
    ended = ", ".join(f"{n} {s}" for s, n in Counter(row.status for row in rows).items())
    print(
        f"{victim:8s} {name:12s} {count:2d} {psnr.mean():9.1f} dB  {spread} "
        f"{colour.mean():9.1f} dB {seconds:7.1f} {ratio:6.2f}  {ended}",
        flush=True,
    )


if __name__ == "__main__":
    main()
