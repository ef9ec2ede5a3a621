"""Trajectory inversion of networks as people train them: batch normalisation, AdamW, a schedule.

Victims come from the plain PyTorch loops below, in float32, on Fashion-MNIST of 14 × 14 pixels; the
attack has the description of the loop, the initial parameters and every record but one. Labels are
inferred. "NN" is the mean squared distance to the nearest record the adversary already had.
Processor seconds of one thread; what targets share is counted once and divided among them.

    EXHUME_DATA=… python benchmarks/bench_trajectory_loops.py --settings batch-norm --targets 10
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from exhume.attacks.informed.trajectory.one_target.invert import invert_one, prepare
from exhume.data import load, split_records
from exhume.data.images import shrunk
from exhume.models import Imported
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.records import Records
from exhume.protocol.release import Weights
from exhume.training import Adam, Batches, CosineDecay, Training

SIDE, RATE = 14, 0.005


def normalised() -> nn.Module:
    """Two convolutions, each with batch normalisation, and a classifier; records (14, 14)."""
    return nn.Sequential(
        nn.Unflatten(1, (1, SIDE)),
        nn.Conv2d(1, 8, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.GELU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.GELU(),
        nn.Flatten(),
        nn.Linear(256, 10),
    )


def normalised_with_biases() -> nn.Module:
    """The same with biases that the normalisation removes again."""
    return nn.Sequential(
        nn.Unflatten(1, (1, SIDE)),
        nn.Conv2d(1, 8, 3, stride=2, padding=1),
        nn.BatchNorm2d(8),
        nn.GELU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.BatchNorm2d(16),
        nn.GELU(),
        nn.Flatten(),
        nn.Linear(256, 10),
    )


def dropping() -> nn.Module:
    """A perceptron with dropout; records (14, 14)."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(196, 32), nn.GELU(), nn.Dropout(0.25), nn.Linear(32, 10)
    )


@dataclass(frozen=True)
class Setting:
    """A network, its description, and n."""

    make: Callable[[], nn.Module]
    training: Training
    fixed_set: int = 100


def described(make: Callable[[], nn.Module], **changes: object) -> Setting:
    network = Imported((SIDE, SIDE), 10, f"{__name__}:{make.__name__}")
    training = Training(
        network,
        tuple(range(10)),
        Adam(RATE, weight_decay=0.01, decoupled=True),
        epochs=6,
        batches=Batches(26, seed=1),
        schedule=CosineDecay(),
    )
    return Setting(make, replace(training, **changes))


SETTINGS = {
    "batch-norm": described(normalised),
    "biases": described(normalised_with_biases),
    "full-batch": described(normalised, batches=None, epochs=30),
    "dropout": described(dropping, draw_seed=3),
}


def plain_loop(setting: Setting, data: Records) -> Weights:
    """Train as a user does; only initial parameters and batch order come from Exhume."""
    training, model = setting.training, setting.make().train()
    drawn = training.initial.draw(training.network, np.random.default_rng(0))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.tensor(drawn[name]))
    x, y = torch.tensor(data.x).float(), torch.tensor(data.labels)
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, training.epochs)
    orders = list(training.steps(len(x), np.random.default_rng(0)))
    if training.draw_seed is not None:
        torch.manual_seed(training.draw_seed)
    for step, chosen in enumerate(orders):
        rows = slice(None) if chosen is None else torch.tensor(chosen)
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimiser.step()
        if (step + 1) % (len(orders) // training.epochs) == 0:
            schedule.step()
    names = dict(model.named_parameters())
    state = {name: values.detach().numpy() for name, values in model.state_dict().items()}
    return Weights(
        {n: a for n, a in state.items() if n in names},
        {n: a for n, a in state.items() if n not in names},
    )


def report(name: str, setting: Setting, first: int, count: int) -> None:
    data = load("fashion-mnist").train
    small = Records(shrunk(data.x, 2), data.y)
    split = split_records(
        small, fixed_set=setting.fixed_set, shadow_targets=0, targets=first + count, seed=0
    )
    chosen = range(first, first + count)
    known = Knowledge(
        record_shape=(SIDE, SIDE),
        value_range=(0.0, 1.0),
        training=setting.training,
        fixed_set=split.fixed_set,
    )
    releases = {
        i: plain_loop(setting, split.fixed_set.with_record(split.targets.take([i]))) for i in chosen
    }
    start = time.process_time()
    prepared = prepare(releases[first], known, np.random.default_rng(0))
    shared = (time.process_time() - start) / count
    print(f"{name}: shared preparation {shared:.1f} CPU s per target", flush=True)
    print("target  MSE      NN       label  residual  status         CPU s", flush=True)
    errors, near = [], []
    for i in chosen:
        target = split.targets.take([i])
        start = time.process_time()
        found = invert_one(releases[i], known, np.random.default_rng(i), prepared=prepared)
        spent = time.process_time() - start + shared
        errors.append(float(np.mean((found.samples[0] - target.x[0]) ** 2)))
        gaps = ((split.fixed_set.x - target.x[0]) ** 2).reshape(setting.fixed_set, -1)
        near.append(float(gaps.mean(axis=1).min()))
        right = "right" if found.labels[0] == target.labels[0] else "wrong"
        residual = float(found.stats["relative_residual"])
        print(f"{i:6d}  {errors[-1]:.1e}  {near[-1]:.1e}  {right:5s}  {residual:.1e}   "
              f"{found.status.name:13s}  {spent:.0f}", flush=True)  # fmt: skip
    below = sum(e < n for e, n in zip(errors, near, strict=True))
    solved = sum(e < 1e-4 for e in errors)
    print(f"{name}: {below}/{count} below NN, {solved}/{count} below 1e-4", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--targets", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="number of the first target")
    parser.add_argument("--settings", nargs="*", default=["batch-norm"], choices=list(SETTINGS))
    options = parser.parse_args()
    for name in options.settings:
        report(name, SETTINGS[name], options.first, options.targets)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
