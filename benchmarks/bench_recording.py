"""What recording an Opacus training costs: a DP-SGD step with and without ``exhume.opacus.watch``.

A small CNN (26,010 parameters) on 28 × 28 images, batches of 128 by Poisson sampling. Both run in
turn in one process, on one thread; the ratio of their median steps is what counts. The floor is
1.20. Beginning a recording (records, exported program) is timed apart.

    python benchmarks/bench_recording.py
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import exhume.opacus


def network() -> nn.Sequential:
    """The small CNN of Opacus' MNIST example."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )


def private(records: int, batch: int) -> tuple[PrivacyEngine, Any, Any, Any]:
    """Return an engine, and what it made private."""
    torch.manual_seed(0)
    model, engine = network(), PrivacyEngine()
    data = TensorDataset(torch.rand(records, 1, 28, 28), torch.randint(10, (records,)))
    made = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(data, batch_size=batch),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    return (engine, *made)


def seconds(model: Any, optimizer: Any, loader: Any, epochs: int) -> list[float]:
    """Return the seconds of every step."""
    loss, found = nn.CrossEntropyLoss(), []
    for _ in range(epochs):
        before = time.perf_counter()
        for x, y in loader:
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
            now = time.perf_counter()
            found.append(now - before)
            before = now
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--records", type=int, default=2560)
    parser.add_argument("--rounds", type=int, default=4)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        plain, watched = private(arguments.records, 128), private(arguments.records, 128)
        started = time.perf_counter()
        recorder = exhume.opacus.watch(*watched, out=Path(folder) / "run")
        begun = time.perf_counter() - started
        times: dict[str, list[float]] = {"plain": [], "watched": []}
        for _ in range(arguments.rounds):
            times["plain"] += seconds(*plain[1:], 1)
            times["watched"] += seconds(*watched[1:], 1)
        recorder.close()
        size = sum(p.stat().st_size for p in (Path(folder) / "run" / "steps").iterdir())
    medians = {name: float(np.median(each)) for name, each in times.items()}
    print(
        f"a step: {1e3 * medians['plain']:.1f} ms plain, {1e3 * medians['watched']:.1f} ms watched"
    )
    print(f"ratio: {medians['watched'] / medians['plain']:.3f} (floor 1.20)")
    print(f"beginning: {begun:.1f} s; a step on disk: {size / recorder.steps / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
