"""Trajectory inversion on models trained by plain PyTorch code: errors and costs.

The released models share nothing with the attack but the data and the initial parameters: an
``nn.Sequential``, ``torch.optim.SGD`` and a float32 loop. Labels are inferred. Times are processor
times on one thread, including all preparations of the attack for a group of targets.

    python benchmarks/bench_trajectory.py
    python benchmarks/bench_trajectory.py --setting mnist-1000 --targets 100
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import numpy as np
import torch

from exhume.attacks.informed.trajectory import TrajectoryInversion
from exhume.data import load
from exhume.models import MLP, Activation
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.records import Records
from exhume.protocol.release import Weights
from exhume.training import SGD, Batches, Training

MODULES = {
    Activation.ELU: torch.nn.ELU,
    Activation.RELU: torch.nn.ReLU,
    Activation.TANH: torch.nn.Tanh,
}


@dataclass(frozen=True)
class Setting:
    """A data set, its number of known records, and the training of the network."""

    name: str
    data: str
    records: int
    learning_rate: float
    activation: Activation = Activation.ELU
    batch: int | None = None
    epochs: int = 100

    def training(self) -> Training:
        batches = None if self.batch is None else Batches(self.batch)
        network = MLP((28, 28), 10, (10,), self.activation)
        optimiser = SGD(self.learning_rate, 0.9)
        return Training(network, tuple(range(10)), optimiser, self.epochs, batches)


SETTINGS = (
    Setting("mnist-300", "mnist", 300, 0.2),
    Setting("mnist-1000", "mnist", 1000, 0.2),
    Setting("mnist-1000-slow", "mnist", 1000, 0.01),
    Setting("mnist-10000", "mnist", 10_000, 0.2),
    Setting("fashion-300", "fashion-mnist", 300, 0.2),
    Setting("fashion-300-slow", "fashion-mnist", 300, 0.01),
    Setting("tanh-300", "mnist", 300, 0.2, Activation.TANH),
    Setting("relu-300", "mnist", 300, 0.2, Activation.RELU),
    Setting("batches-300", "mnist", 300, 0.05, batch=64, epochs=20),
)
DEFAULT = ("mnist-300", "fashion-300-slow", "batches-300")
HEADER = (
    "setting            targets    mean  median     max  <1e-4  <oracle  labels  "
    "certified  corr  CPU-s"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--setting", nargs="*", default=DEFAULT, choices=[s.name for s in SETTINGS])
    parser.add_argument("--targets", type=int, default=16)
    parser.add_argument("--group", type=int, default=32, help="targets attacked at once")
    parser.add_argument("--jacobians", type=int, default=60, help="of the fallback, 0: none")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    print(HEADER, flush=True)
    for setting in SETTINGS:
        if setting.name in chosen.setting:
            attack = TrajectoryInversion(jacobians=chosen.jacobians)
            row = measured(setting, attack, chosen.targets, chosen.group, chosen.seed)
            print(f"{setting.name:18s} {row}", flush=True)


def measured(
    setting: Setting, attack: TrajectoryInversion, count: int, group: int, seed: int
) -> str:
    """Attack ``count`` unseen targets and return a row of the table."""
    data = load(setting.data).train
    order = np.random.default_rng([seed, 7]).permutation(len(data))
    fixed_set = data.take(order[: setting.records])
    targets = data.take(order[setting.records : setting.records + count])
    training = setting.training()
    knowledge = Knowledge(
        record_shape=(28, 28), value_range=(0.0, 1.0), training=training, fixed_set=fixed_set
    )
    releases = [released(setting, training, fixed_set, targets.take([i])) for i in range(count)]
    found, start = [], time.process_time()
    for begin in range(0, count, group):
        part = releases[begin : begin + group]
        streams = [np.random.default_rng([seed, begin + i]) for i in range(len(part))]
        found += attack.reconstruct_each(part, [knowledge] * len(part), rngs=streams)
    seconds = (time.process_time() - start) / count
    pairs = list(zip(found, targets.x, strict=True))
    error = np.array([np.mean((one.samples[0] - x) ** 2) if len(one) else 1.0 for one, x in pairs])
    oracle = np.array([((fixed_set.x - x) ** 2).mean(axis=(1, 2)).min() for x in targets.x])
    residual = np.array([float(one.stats.get("relative_residual", 1.0)) for one in found])
    labels = np.mean([len(o) and o.labels[0] == y for o, y in zip(found, targets.y, strict=True)])
    certified = [one.status.name == "CONVERGED" for one in found]
    if np.any(np.array(certified) & (error > 1e-4)):
        print("a wrong record was certified")
    correlation = np.corrcoef(np.log(residual), np.log(error + 1e-30))[0, 1] if count > 1 else 1.0
    return (
        f"{count:7d} {error.mean():7.1e} {np.median(error):7.1e} {error.max():7.1e} "
        f"{np.mean(error < 1e-4):6.0%} {np.mean(error < oracle):8.0%} {labels:7.0%} "
        f"{np.mean(certified):10.0%} {correlation:5.2f} {seconds:6.2f}"
    )


def released(setting: Setting, training: Training, fixed_set: Records, target: Records) -> Weights:
    """Train by hand-written code."""
    net = torch.nn.Sequential(
        torch.nn.Flatten(),
        torch.nn.Linear(784, 10),
        MODULES[setting.activation](),
        torch.nn.Linear(10, 10),
    )
    initial = training.initial.draw(training.network, np.random.default_rng(0))
    with torch.no_grad():
        for parameter, values in zip(net.parameters(), initial.values(), strict=True):
            parameter.copy_(torch.tensor(values))
    x = torch.tensor(np.concatenate([fixed_set.x, target.x]), dtype=torch.float32)
    y = torch.tensor(np.concatenate([fixed_set.labels, target.labels]))
    optimiser = torch.optim.SGD(net.parameters(), lr=setting.learning_rate, momentum=0.9)
    for index in training.steps(len(x), np.random.default_rng(0)):
        part = slice(None) if index is None else torch.as_tensor(index)
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(net(x[part]), y[part]).backward()
        optimiser.step()
    values = [parameter.detach().numpy().copy() for parameter in net.parameters()]
    return Weights(dict(zip(initial, values, strict=True)))


if __name__ == "__main__":
    main()
