"""Trajectory inversion of one target on real images: share solved, error, time per target.

Released models are trained by the plain PyTorch below in float32, which shares nothing with the
attack but the initial parameters and the order of the batches. Labels are inferred unless the
setting says otherwise. Solved means a mean squared error below 1e-4. "NN" is the mean squared
distance to the nearest record the adversary already had. One thread; times are processor times.
Shared preparation (simulated references) is counted once and divided by the number of targets.

    python benchmarks/bench_trajectory_general.py --targets 8 --settings fashion tanh batches
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from exhume.attacks.informed.trajectory.one_target.invert import invert_one, prepare
from exhume.attacks.informed.trajectory.one_target.search import Effort
from exhume.data import load, split_records
from exhume.models import CNN, MLP, Activation, Convolution
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.release import Outputs, Release, Weights
from exhume.training import SGD, Adam, Batches, Training

SMALL = (Convolution(8, 4, 2), Convolution(16, 4))
MODULES = {Activation.ELU: nn.ELU, Activation.TANH: nn.Tanh, Activation.RELU: nn.ReLU}


@dataclass(frozen=True)
class Setting:
    data: str
    training: Training
    fixed_set: int = 300
    queries: int = 0
    labels: bool = False
    noise: float = 0.0


def perceptron(activation: Activation = Activation.ELU) -> Training:
    network = MLP((28, 28), 10, activation=activation)
    return Training(network, tuple(range(10)), SGD(0.2, 0.9), epochs=100)


CONVOLUTIONS = replace(
    perceptron(), network=CNN((28, 28), 10, SMALL), optimiser=SGD(0.1, 0.9), epochs=30
)
COLOURED = replace(CONVOLUTIONS, network=CNN((32, 32, 3), 10, SMALL), optimiser=SGD(0.05, 0.9))
MINI = replace(perceptron(), batches=Batches(64, seed=1), optimiser=SGD(0.05, 0.9), epochs=20)
SETTINGS = {
    "fashion": Setting("fashion-mnist", perceptron()),
    "elu": Setting("mnist", perceptron()),
    "tanh": Setting("mnist", perceptron(Activation.TANH)),
    "batches": Setting("mnist", MINI),
    "cnn": Setting("mnist", CONVOLUTIONS, fixed_set=50),
    "relu": Setting("mnist", perceptron(Activation.RELU)),
    "adam": Setting("mnist", replace(perceptron(), optimiser=Adam(0.005))),
    "logits": Setting("mnist", perceptron(), queries=1000),
    "cifar": Setting("cifar-10", COLOURED, fixed_set=50),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--targets", type=int, default=3)
    parser.add_argument("--settings", nargs="*", default=["fashion", "tanh", "batches"])
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    print("setting    solved  label   median MSE  worst MSE   NN       CPU-s / target  certified")
    for name in options.settings:
        report(name, SETTINGS[name], options.targets, verbose=options.verbose)


def report(name: str, setting: Setting, count: int, *, verbose: bool) -> None:
    split = split_records(
        load(setting.data).train, fixed_set=setting.fixed_set, shadow_targets=0,
        targets=count, seed=0,
    )  # fmt: skip
    errors, labels, times, certified, near = [], [], [], [], []
    known = Knowledge(
        record_shape=split.targets.record_shape,
        value_range=(0.0, 1.0),
        training=setting.training,
        fixed_set=split.fixed_set,
    )
    prepared = None
    for i in range(count):
        target = split.targets.take([i])
        release = released(setting, split.fixed_set.with_record(target))
        own = replace(known, labels=target.labels) if setting.labels else known
        start = time.process_time()
        if prepared is None:
            prepared = prepare(release, own, np.random.default_rng(0), effort=Effort())
            shared = time.process_time() - start
            start = time.process_time()
        found = invert_one(release, own, np.random.default_rng(i), prepared=prepared)
        times.append(time.process_time() - start + shared / count)
        errors.append(float(np.mean((found.samples[0] - target.x[0]) ** 2)))
        labels.append(bool(found.labels[0] == target.labels[0]))
        certified.append(found.status.name == "CONVERGED")
        gaps = ((split.fixed_set.x - target.x[0]) ** 2).reshape(setting.fixed_set, -1)
        near.append(float(gaps.mean(axis=1).min()))
        if verbose:
            facts = f"{found.status.name} {dict(found.stats)}"
            print(f"  {i} {errors[-1]:.1e} {labels[-1]} {times[-1]:.1f} s {facts}", flush=True)
    solved = sum(error < 1e-4 for error in errors)
    print(
        f"{name:10s} {solved}/{count}     {sum(labels)}/{count}     {np.median(errors):.1e}   "
        f"{max(errors):.1e}   {np.mean(near):.1e}  {np.mean(times):8.1f}        "
        f"{sum(certified)}/{count}",
        flush=True,
    )


def released(setting: Setting, data: object) -> Release:
    """Train a model by plain code and release it, or its answers to random queries."""
    training = setting.training
    model = module(training)
    drawn = training.initial.draw(training.network, np.random.default_rng(0))
    with torch.no_grad():
        for parameter, values in zip(model.parameters(), drawn.values(), strict=True):
            parameter.copy_(torch.tensor(values))
    x, y = torch.tensor(data.x).float(), torch.tensor(data.labels)
    own = training.optimiser
    if isinstance(own, SGD):
        optimiser = torch.optim.SGD(model.parameters(), own.learning_rate, own.momentum)
    else:
        optimiser = torch.optim.Adam(model.parameters(), own.learning_rate)
    for chosen in training.steps(len(x), np.random.default_rng(0)):
        rows = slice(None) if chosen is None else torch.tensor(chosen)
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimiser.step()
    if setting.queries:
        queries = np.random.default_rng(1).normal(0.3, 1.0, (setting.queries, *x.shape[1:]))
        return Outputs(queries, model(torch.tensor(queries).float()).detach().numpy())
    names = training.network.parameter_shapes()
    values = (parameter.detach().numpy() for parameter in model.parameters())
    return Weights(dict(zip(names, values, strict=True)))


class ChannelsFirst(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, None] if x.ndim == 3 else x.permute(0, 3, 1, 2)


def module(training: Training) -> nn.Module:
    network = training.network
    bend = MODULES[network.activation]
    if isinstance(network, MLP):
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 10), bend(), nn.Linear(10, 10))
    channels, head = (3, 1936) if len(network.record_shape) == 3 else (1, 1600)
    return nn.Sequential(
        ChannelsFirst(),
        nn.Conv2d(channels, 8, 4, 2),
        bend(),
        nn.Conv2d(8, 16, 4),
        bend(),
        nn.Flatten(),
        nn.Linear(head, 10),
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
