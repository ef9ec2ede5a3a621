"""The effect of one record, predicted by linear response: how far off, how much cheaper, what for.

``inversion`` rebuilds held-out CIFAR-10 records from the paper's own CNN (Balle et al. 2022, Table
VI: 55,098 parameters, learning rate 0.01, momentum 0.9, 100 steps on all records). Victims are
trained by the plain PyTorch below; labels are inferred. ``response`` compares predicted effects
with real trainings by number of records, depth and activation. One thread; times are processor
times. All trainings are stored in ``--out``: a second run resumes there.

    python benchmarks/bench_response.py inversion --targets 20 --activation elu
    python benchmarks/bench_response.py response --records 300 1000 5000
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

from exhume.attacks.informed.trajectory.linear_response.engine import LinearResponse
from exhume.attacks.informed.trajectory.linear_response.invert import TargetSearch
from exhume.attacks.informed.trajectory.linear_response.retrain import RealTrainings, TrainedPath
from exhume.data import load
from exhume.models import CNN, Activation, Convolution
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.records import Records
from exhume.training import SGD, Training

MODULES = {"elu": nn.ELU, "relu": nn.ReLU, "tanh": nn.Tanh}
DEPTHS = {
    1: (Convolution(16, 4, 2),),
    2: (Convolution(16, 4, 2), Convolution(32, 4)),
    3: (Convolution(16, 4, 2), Convolution(32, 4), Convolution(32, 3)),
}
PUBLISHED = 0.0049


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", choices=["inversion", "response"])
    parser.add_argument("--targets", type=int, default=2)
    parser.add_argument("--records", type=int, nargs="+", default=[5000])
    parser.add_argument("--activation", nargs="+", choices=list(MODULES), default=["elu"])
    parser.add_argument("--depth", type=int, nargs="+", choices=list(DEPTHS), default=[2])
    parser.add_argument("--retrainings", type=int, default=4)
    parser.add_argument("--out", type=Path, default=Path("build/bench_response"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    settings = [
        (n, activation, depth)
        for activation in options.activation
        for depth in options.depth
        for n in options.records
    ]
    if options.table == "response":
        print("records  activation  convolutions  error: of each real training  × cheaper")
    for n, activation, depth in settings:
        if options.table == "response":
            compare(n, activation, depth, options.out)
        else:
            invert(n, activation, depth, options)


def records(n: int, targets: int) -> tuple[Records, Records]:
    """Return the fixed set, and targets that it does not hold."""
    data = load("cifar-10").train
    order = np.random.default_rng(0).permutation(len(data))
    return data.take(order[:n]), data.take(order[len(order) - targets :])


def training_of(activation: str, depth: int) -> Training:
    network = CNN((32, 32, 3), 10, DEPTHS[depth], Activation(activation))
    return Training(network, tuple(range(10)), SGD(0.01, 0.9), epochs=100)


class StoredTrainings(RealTrainings):
    """Real trainings that are kept in a folder, with the seconds that they took."""

    folder: Path
    tried: list[np.ndarray]
    seconds: float = 0.0
    """Of all trainings that were asked for, stored ones included."""
    spent: float = 0.0
    """Of those that ran now."""

    def _path(self, x: np.ndarray, label: np.ndarray, weight: float) -> TrainedPath:
        self.tried.append(x[0])
        digest = hashlib.sha256(np.ascontiguousarray(x, dtype=np.float64).tobytes())
        digest.update(repr((self.training, self.count, label.tolist(), weight)).encode())
        file = self.folder / f"training-{digest.hexdigest()[:24]}.npz"
        if not file.exists():
            start = time.process_time()
            path = super()._path(x, label, weight)
            spent = time.process_time() - start
            self.spent += spent
            partial = file.with_suffix(".partial.npz")
            np.savez(partial, kept=path.kept.numpy(), end=path.end.numpy(), seconds=spent)
            partial.rename(file)
        with np.load(file) as arrays:
            self.seconds += float(arrays["seconds"])
            return TrainedPath(torch.tensor(arrays["kept"]), torch.tensor(arrays["end"]))


def engine_for(training: Training, fixed_set: Records, out: Path) -> LinearResponse:
    retraining = StoredTrainings(training, fixed_set)
    retraining.folder, retraining.tried = out, []
    return LinearResponse(retraining)


def invert(n: int, activation: str, depth: int, options: argparse.Namespace) -> None:
    fixed_set, targets = records(n, max(20, options.targets))
    training = training_of(activation, depth)
    file = options.out / f"inversion-{n}-{activation}-{depth}-{options.retrainings}.jsonl"
    done = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    engine = None
    for i in range(len(done), options.targets):
        theta = victim(training, fixed_set, targets.take([i]), i, options.out)
        if engine is None:
            start = time.process_time()
            engine = engine_for(training, fixed_set, options.out)
            trainings = engine.retraining
            assert isinstance(trainings, StoredTrainings)
            own = time.process_time() - start + trainings.seconds - trainings.spent
            print(f"once: {own:.0f} CPU-s, error {engine.error:.0%}", flush=True)
        done.append(attack(engine, theta, targets.take([i]), options.retrainings))
        with file.open("a") as lines:
            lines.write(json.dumps(done[-1]) + "\n")
        print(i, done[-1], flush=True)
    errors = np.array([one["mse"] for one in done])
    certified = [one["status"] == "CONVERGED" for one in done]
    print(
        f"{n} records, {activation}, {depth} convolutions: {len(done)} targets, "
        f"{int((errors < PUBLISHED).sum())} below {PUBLISHED}, {int((errors < 1e-4).sum())} below "
        f"1e-4, MSE median {np.median(errors):.1e}, worst {errors.max():.1e}; labels right "
        f"{sum(one['label'] for one in done)}; certified {sum(certified)}, of those "
        f"{int((errors[certified] > 1e-3).sum())} above 1e-3; nearest known record "
        f"{np.mean([one['nearest'] for one in done]):.4f}; "
        f"{np.mean([one['seconds'] for one in done]):.0f} CPU-s per target"
    )


def attack(
    engine: LinearResponse, theta: np.ndarray, target: Records, retrainings: int
) -> dict[str, object]:
    """Rebuild one target, and compare."""
    retraining = engine.retraining
    assert isinstance(retraining, StoredTrainings)
    begun = time.process_time() + retraining.seconds - retraining.spent
    known = Knowledge(
        record_shape=target.record_shape,
        value_range=(0.0, 1.0),
        training=engine.training,
        fixed_set=retraining.fixed_set,
    )
    search = TargetSearch(engine, torch.tensor(theta), known, np.random.default_rng(0))
    retraining.tried.clear()
    found = search.run(retrainings)
    truth = target.x[0]
    gaps = ((retraining.fixed_set.x - truth) ** 2).reshape(len(retraining.fixed_set), -1)
    return {
        "mse": float(np.mean((found.samples[0] - truth) ** 2)),
        "predicted": float(np.mean((retraining.tried[0] - truth) ** 2)),
        "label": bool(found.labels[0] == target.labels[0]),
        "status": found.status.name,
        "residual": found.stats["relative_residual"],
        "estimate": float(found.error_estimate[0]),
        "nearest": float(gaps.mean(axis=1).min()),
        "trainings": len(retraining.tried),
        "seconds": time.process_time() + retraining.seconds - retraining.spent - begun,
    }


def compare(n: int, activation: str, depth: int, out: Path) -> None:
    """Print how far predicted effects are from real trainings, and the ratio of their times."""
    fixed_set, _ = records(n, 20)
    training = training_of(activation, depth)
    engine = engine_for(training, fixed_set, out)
    assert isinstance(engine.retraining, StoredTrainings)
    each = engine.retraining.seconds / 3
    x = torch.tensor(fixed_set.x[0], dtype=torch.float32)
    start = time.process_time()
    for _ in range(10):
        engine.response(x, 0)
    ratio = each / ((time.process_time() - start) / 10)
    print(f"{n:7d}  {activation:10s}  {depth:12d}  {engine.error:24.0%}  {ratio:11.0f}", flush=True)


def victim(
    training: Training, fixed_set: Records, target: Records, number: int, out: Path
) -> np.ndarray:
    """Train by plain PyTorch on the fixed set and the target, and return the parameters."""
    network = training.network
    assert isinstance(network, CNN)
    name = f"{network.activation.value}-{len(network.convolutions)}-{len(fixed_set)}-{number}"
    file = out / f"victim-{name}.npy"
    if file.exists():
        return np.load(file)
    data = fixed_set.with_record(target)
    x = torch.tensor(data.x, dtype=torch.float32).permute(0, 3, 1, 2).contiguous()
    y = torch.tensor(data.labels)
    model = module(network)
    drawn = training.initial.draw(network, np.random.default_rng(0))
    with torch.no_grad():
        for parameter, values in zip(model.parameters(), drawn.values(), strict=True):
            parameter.copy_(torch.tensor(values))
    optimiser = torch.optim.SGD(model.parameters(), 0.01, 0.9)
    for _ in range(training.epochs):
        optimiser.zero_grad()
        for some, labels in zip(x.split(500), y.split(500), strict=True):
            losses = nn.functional.cross_entropy(model(some), labels, reduction="sum")
            (losses / len(x)).backward()
        optimiser.step()
    theta = torch.cat([p.detach().reshape(-1) for p in model.parameters()]).numpy()
    np.save(file.with_suffix(".partial.npy"), theta)
    file.with_suffix(".partial.npy").rename(file)
    return theta


def module(network: CNN) -> nn.Module:
    layers: list[nn.Module] = []
    channels, side = 3, 32
    for one in network.convolutions:
        layers += [nn.Conv2d(channels, one.filters, one.kernel, one.stride)]
        layers += [MODULES[network.activation.value]()]
        channels, side = one.filters, (side - one.kernel) // one.stride + 1
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * side * side, 10))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
