"""Recovers batches of CIFAR-10 from one gradient of a fully connected network, analytically.

Each row shows: the mean PSNR over the images of all batches (by assignment, cap 100 dB), the worst
image, the share of images above 40 dB, the share of correct labels, the share of batches that the
attack itself calls converged, and its processor seconds per batch. The baseline is the best
constant colour of each image. "edges alone" is independent component analysis of ∂x∂y without the
later steps; "pixels alone" is the naive variant on plain pixels. All rows run on one thread, in
one run.

    EXHUME_DATA=… python benchmarks/bench_analytic.py --batches 10 --seeds 3
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from exhume.attacks.gradients.analytic import Cocktail, FirstLayer, Imprint, Sparsity
from exhume.attacks.gradients.analytic.read_gradient import FirstLayerGradient, observe
from exhume.attacks.gradients.analytic.unmixing import unmix
from exhume.data import load
from exhume.metrics import PSNR, match
from exhume.models import MLP, Activation, Initialisation
from exhume.protocol.attack import Attack
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.records import Records
from exhume.protocol.release import Gradient
from exhume.training.gradient import GradientStep

SHAPE, CLASSES = (32, 32, 3), tuple(range(10))
DECIBELS = PSNR(value_range=(0.0, 1.0))
Solver = Callable[[Gradient, Knowledge, int], Reconstruction]


@dataclass(frozen=True)
class Row:
    """One line of the table: an attack on batches of one size."""

    name: str
    size: int
    activation: Activation
    solve: Solver
    crafted: Imprint | None = None


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", type=int, default=10, help="batches per seed")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="", help="rows whose name contains this")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    data = load("cifar-10")
    assert data.test is not None
    print(f"CIFAR-10, 3072-512-512-10, untrained, float32 gradients; {chosen.batches} batches x ")
    print(f"{chosen.seeds} seeds (each with its own network, batches and attack); cap 100 dB\n")
    print(
        "attack                       B  PSNR dB  worst  constant  >40 dB  labels  converged  CPU s"
    )
    with threadpool_limits(1):
        for row in rows():
            if chosen.only in row.name:
                report(row, data.train, data.test, chosen.seeds, chosen.batches)


def rows() -> Iterator[Row]:
    relu, elu = Activation.RELU, Activation.ELU
    for size in (8, 64):
        yield Row("cocktail, relu", size, relu, attacking(Cocktail()))
    for size in (8, 32):
        yield Row("cocktail, elu", size, elu, attacking(Cocktail()))
    for bins, measurements in ((256, 1), (256, 2), (1024, 1), (1024, 2)):
        attack = Imprint(bins=bins, measurements=measurements)
        name = f"imprint, {bins} bins / {measurements}"
        yield Row(name, 64, relu, attacking(attack), attack)
    for size in (5, 8):
        yield Row("sparsity, relu", size, relu, attacking(Sparsity()))
    yield Row("first-layer, elu", 1, elu, attacking(FirstLayer()))
    for size in (8, 64):
        yield Row("edges alone, relu", size, relu, unmixing_alone(SHAPE))
        yield Row("pixels alone, relu", size, relu, unmixing_alone((3072,)))


def attacking(attack: Attack) -> Solver:
    return lambda release, knowledge, seed: attack.reconstruct(release, knowledge, rng=seed)


def unmixing_alone(shape: tuple[int, ...]) -> Solver:
    """Return independent components of rows seen as ``shape``, without further steps."""

    def solve(release: Gradient, knowledge: Knowledge, seed: int) -> Reconstruction:
        observed = observe(release, knowledge)
        assert isinstance(observed, FirstLayerGradient)
        factors = observed.factors()
        unmixing = unmix(factors.right, shape, np.random.default_rng(seed))
        samples = np.clip(factors.inputs(unmixing), 0.0, 1.0).reshape(-1, *SHAPE)
        return Reconstruction(samples, Status.APPROXIMATE)

    return solve


def report(row: Row, own: Records, test: Records, seeds: int, batches: int) -> None:
    """Print one line over every batch of every seed."""
    scores, labels, constant, converged, seconds = [], [], [], [], []
    for seed in range(seeds):
        step, knowledge = setting(row, own, seed)
        rng = np.random.default_rng([seed, row.size])
        for batch in range(batches):
            data = test.take(rng.choice(len(test), row.size, replace=False))
            release = step.publish(data, rng=rng)
            start = time.process_time()
            found = row.solve(release, knowledge, batch)
            seconds.append(time.process_time() - start)
            matched = match(data.x, found.samples, DECIBELS)
            scores.append(np.nan_to_num(matched.scores, nan=0.0))
            if found.labels is not None:
                right = found.labels[matched.indices] == data.labels
                labels.append(np.where(matched.matched, right, False))
            constant.append(constant_colour(data))
            converged.append(found.status is Status.CONVERGED)
    every, known = np.concatenate(scores), np.mean(labels) if labels else np.nan
    print(
        f"{row.name:24s} {row.size:5d} {every.mean():8.1f} {every.min():6.1f} "
        f"{np.mean(constant):9.1f} {np.mean(every > 40.0):7.3f} {known:7.3f} "
        f"{np.mean(converged):10.2f} {np.mean(seconds):7.2f}",
        flush=True,
    )


def setting(row: Row, own: Records, seed: int) -> tuple[GradientStep, Knowledge]:
    """Return the step that the client takes, and the server's knowledge."""
    network = MLP(SHAPE, 10, (512, 512), row.activation)
    step = GradientStep(network, CLASSES, Initialisation(seed=seed))
    knowledge = Knowledge(record_shape=SHAPE, value_range=(0.0, 1.0), training=step)
    if row.crafted is not None:
        pool = own.take(np.random.default_rng(seed).choice(len(own), 3000, replace=False))
        step = row.crafted.craft(replace(knowledge, shadow_targets=pool), seed)
        knowledge = replace(knowledge, training=step)
    return step, knowledge


def constant_colour(data: Records) -> float:
    """Return the mean PSNR of each image's own mean colour."""
    flat = data.x.reshape(len(data), -1, 3)
    colour = np.broadcast_to(flat.mean(axis=1, keepdims=True), flat.shape)
    return float(np.mean(DECIBELS(flat, colour)))


if __name__ == "__main__":
    main()
