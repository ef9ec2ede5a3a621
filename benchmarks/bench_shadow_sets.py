"""Learning from large sets of shadow models: streamed from a file, against dense arrays in memory.

Every row is a process of its own, which reads the same differences (made up: factors and noise, in
the shape of Balle et al. 2022's MNIST network, 784-10-10). "dense" is one kernel with its
eigendecomposition (ridge), or all standardised inputs at once (φ, ten batches); "streamed" is what
attacks do with a set that is mapped. Seconds are processor time on one thread, memory is what the
process had at most beyond its start. Ratios are dense over streamed.

    python benchmarks/bench_shadow_sets.py [--models 6000] [--parameters 7960] [--attacks ridge phi]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

ENTRIES, CLASSES, BATCH, FIRST = 784, 10, 128, 7840


def rows(path: Path, models: int, parameters: int) -> None:
    """Write differences to a file: of low rank with noise, so that kernels have a spectrum."""
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(300, parameters)).astype(np.float32)
    table = np.memmap(path, np.float32, "w+", shape=(models, parameters))
    for start in range(0, models, 1000):
        mixed = rng.normal(size=(min(1000, models - start), 300)).astype(np.float32)
        noise = rng.normal(size=(len(mixed), parameters)).astype(np.float32)
        table[start : start + len(mixed)] = mixed @ factors + 3 * noise
    table.flush()


def answers(models: int) -> tuple[np.ndarray, np.ndarray]:
    """Return records with a column per class, and labels."""
    rng = np.random.default_rng(1)
    labels = rng.integers(0, CLASSES, models)
    return np.hstack([rng.uniform(size=(models, ENTRIES)), np.eye(CLASSES)[labels]]), labels


def dense_ridge(table: np.ndarray) -> None:
    """One kernel over all models, twice: for labels, and for records by label."""
    from exhume.attacks.informed.learned.kernel_ridge import Kernel, directions, fit
    from exhume.attacks.informed.learned.shadow_regression import by_labels

    wanted, labels = answers(len(table))
    compared = directions(np.array(table), FIRST)
    kernel = Kernel.PRODUCT.of(*compared.table(len(table)))
    fit(kernel, wanted, judged=ENTRIES)
    fit(by_labels(kernel, labels), wanted, judged=ENTRIES)


def streamed_ridge(table: np.ndarray) -> None:
    """The same by Cholesky factors, from rows that are read from the file."""
    from exhume.attacks.informed.learned.kernel_ridge import PENALTIES, Kernel
    from exhume.attacks.informed.learned.label_blocks import SOUGHT
    from exhume.attacks.informed.learned.streamed_kernel import (
        StreamedDirections,
        block_regression,
        sought,
    )

    wanted, labels = answers(len(table))
    places = np.arange(len(table))
    for own in (None, labels):
        search = sought(len(PENALTIES) // 3)
        for some in (places[:SOUGHT], places):
            compared = StreamedDirections.of(table, some, FIRST, 1.0)
            mine = None if own is None else own[some]
            _, place = block_regression(
                *(compared, Kernel.PRODUCT, wanted[some], search), judged=ENTRIES, labels=mine
            )
            search = fixed(place)


def fixed(place: int) -> Callable[[Callable[[int], float]], int]:
    """Return no search: always this penalty."""
    return lambda _: place


def dense_phi(table: np.ndarray) -> None:
    """Standardise everything, then take ten batches."""
    import torch

    from exhume.attacks.informed.learned.phi import standardised
    from exhume.attacks.informed.learned.train_network import Examples

    held = np.array(table)
    inputs = torch.tensor(standardised(held, held.shape[1])(held))
    batches(Examples(inputs, torch.zeros(len(held), ENTRIES)))


def streamed_phi(table: np.ndarray) -> None:
    """Standardise ten batches that are read from the file."""
    import torch

    from exhume.attacks.informed.learned.phi import standardised
    from exhume.attacks.informed.learned.train_network import StreamedExamples

    standard = standardised(table, table.shape[1])
    batches(StreamedExamples(standard, table, torch.zeros(len(table), ENTRIES)))


def batches(examples: object) -> None:
    rng = np.random.default_rng(2)
    for _ in range(10):
        examples.batch(rng.choice(len(examples.truth), BATCH, replace=False))  # type: ignore[attr-defined]


WAYS: dict[str, tuple[Callable[[np.ndarray], None], Callable[[np.ndarray], None]]] = {
    "ridge": (dense_ridge, streamed_ridge),
    "phi": (dense_phi, streamed_phi),
}


def peak() -> float:
    """Return the largest memory of this process so far, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def alone(name: str, way: int, path: str, models: int, parameters: int) -> None:
    """Run one way in this process, and print its seconds and megabytes."""
    import scipy.linalg
    import torch

    torch.set_num_threads(1)
    torch.zeros(1) @ torch.zeros(1)
    scipy.linalg.cholesky(np.eye(2))
    table = np.memmap(path, np.float32, "r", shape=(models, parameters))
    before, started = peak(), time.process_time()
    with threadpool_limits(limits=1):
        WAYS[name][way](table)
    print(json.dumps([time.process_time() - started, peak() - before]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=6000)
    parser.add_argument("--parameters", type=int, default=7960)
    parser.add_argument("--attacks", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--alone", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        name, way, path = options.alone
        alone(name, int(way), path, options.models, options.parameters)
        return
    print(f"{options.models:,} models of {options.parameters:,} parameters")
    print("attack   dense: s     MB   streamed: s     MB    ratio: s    MB")
    size = ["--models", str(options.models), "--parameters", str(options.parameters)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows"
        rows(path, options.models, options.parameters)
        for name in options.attacks:
            told = []
            for way in ("0", "1"):
                command = [sys.executable, __file__, *size, "--alone", name, way, str(path)]
                environment = {**os.environ, "OMP_NUM_THREADS": "1"}
                ended = subprocess.run(
                    command, env=environment, capture_output=True, text=True, check=True
                )
                told.append(json.loads(ended.stdout))
            (slow, large), (fast, small) = told
            print(
                f"{name:8s} {slow:7.1f} {large:6.0f}   {fast:11.1f} {small:6.0f}"
                f" {slow / fast:11.1f} {large / small:5.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
