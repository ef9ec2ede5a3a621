"""Recovers rows of a mixed table from one gradient or update, cell by cell.

The table is diabetes-mixed: six columns in named levels, four numbers. Each line has the share of
values that are right (a level exactly, a number within 0.319 deviations, as in Vero et al. 2023),
the same with numbers within 0.01 deviations, whole records right at both, the labels, the share of
batches that the attack itself calls converged, and processor seconds per batch. Three guesses do
not see the release: "drawn" takes every cell from the known records at random, "usual" takes each
column's most frequent level or median, "constant" is the audit's best constant row. Where an attack
says how sure it is of a cell, the last column is the chance that a right cell has a higher
certainty than a wrong one. All lines run on one thread, in one run.

    python benchmarks/bench_table_gradients.py --batches 2 --seeds 3
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from exhume.attacks import Cocktail, FirstLayer, Oblivious, Sparsity, TabLeak
from exhume.data import load, split_records
from exhume.metrics import RMSE, RecordsRight, ValuesRight, match
from exhume.models import MLP, Activation, Initialisation
from exhume.models.public_units import PublicUnits
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.attack import Attack
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.records import Records
from exhume.stats.roc import roc_area
from exhume.training import SGD
from exhume.training.gradient import GradientStep
from exhume.training.local_steps import LocalSteps

TABLE = load("diabetes-mixed")
assert TABLE.schema is not None
SCHEMA = TABLE.schema
KNOWN = 150
"""How many records the adversary has to learn the columns' ranges from."""


Guess = Callable[[Array, int, np.random.Generator], FloatArray]


@dataclass(frozen=True)
class Row:
    """One line: an attack on batches of one size, or a guess from the known records."""

    name: str
    attack: Attack | Guess
    size: int
    hidden: tuple[int, ...] = (100,)
    local_steps: int = 0


@dataclass
class Tally:
    """What came out of the batches of one line."""

    values: list[float] = field(default_factory=list)
    close: list[float] = field(default_factory=list)
    records: list[float] = field(default_factory=list)
    close_records: list[float] = field(default_factory=list)
    labels: list[bool] = field(default_factory=list)
    converged: list[bool] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    sure: list[FloatArray] = field(default_factory=list)
    unsure: list[FloatArray] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", type=int, default=3, help="batches per seed")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="", help="lines whose name contains this")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    print(f"diabetes-mixed, untrained ReLU networks, float32; {chosen.batches} batches x ")
    print(f"{chosen.seeds} seeds (each with its own network, split and attack)\n")
    print(
        f"{'attack':<30} B  values (0.01)  records (0.01)  labels  converged  CPU s  certainty AUC"
    )
    with threadpool_limits(1):
        for row in rows():
            if chosen.only in row.name:
                print(told(row, tallied(row, chosen.seeds, chosen.batches)), flush=True)


def rows() -> Iterator[Row]:
    deep = (100, 100)
    for size in (8, 16):
        yield Row("drawn", drawn, size)
        yield Row("usual", usual, size)
        yield Row("constant", Oblivious(), size)
    for size in (8, 16):
        yield Row("tableak, 100", TabLeak(), size)
    yield Row("tableak, 100, no changes", TabLeak(changes=0), 16)
    yield Row("tableak, 100, 3 local steps", TabLeak(), 8, local_steps=3)
    yield Row("first-layer, 100", FirstLayer(), 1)
    yield Row("cocktail, 100", Cocktail(), 16)
    for size in (8, 16):
        yield Row("sparsity, 100-100", Sparsity(largest=16), size, deep)
        yield Row("cocktail, 100-100", Cocktail(), size, deep)
    yield Row("cocktail, 400-100", Cocktail(), 16, (400, 100))
    yield Row("sparsity, 400-100", Sparsity(largest=16), 16, (400, 100))
    yield Row("tableak, 100-100", TabLeak(), 16, deep)
    yield Row("tableak, 100", TabLeak(), 32)


def tallied(row: Row, seeds: int, batches: int) -> Tally:
    found = Tally()
    for seed in range(seeds):
        split = split_records(
            TABLE.train, fixed_set=0, shadow_targets=KNOWN, targets=row.size * batches, seed=seed
        )
        step = a_step(split.shadow_targets, row.hidden, seed)
        mechanism = LocalSteps(step, SGD(0.05), row.local_steps) if row.local_steps else step
        knowledge = Knowledge(
            record_shape=(SCHEMA.width,),
            training=mechanism,
            shadow_targets=split.shadow_targets,
            schema=SCHEMA,
        )
        for batch in range(batches):
            client = split.targets.take(slice(batch * row.size, (batch + 1) * row.size))
            rng = np.random.default_rng([seed, batch])
            release = mechanism.publish(client, rng=rng)
            begun = time.process_time()
            if isinstance(row.attack, Attack):
                result = row.attack.reconstruct(release, knowledge, rng=rng)
            else:
                rows = row.attack(split.shadow_targets.x, row.size, rng)
                result = Reconstruction(rows, Status.NO_INFORMATION)
            found.seconds.append(time.process_time() - begun)
            compare(found, client, result, SCHEMA.scale(split.shadow_targets.x))
    return found


def a_step(own: Records, hidden: tuple[int, ...], seed: int) -> GradientStep:
    """Return one gradient of an untrained network, its numbers standardised by public constants."""
    spread = SCHEMA.scale(own.x)
    centre = np.where(SCHEMA.numbers, own.x.mean(axis=0), 0.0)
    scale = np.where(SCHEMA.numbers, spread, 1.0)
    network = MLP((SCHEMA.width,), 2, hidden, Activation.RELU)
    public = PublicUnits(network, tuple(centre.tolist()), tuple(scale.tolist()))
    return GradientStep(public, (0, 1), Initialisation(seed=seed))


def drawn(pool: Array, count: int, rng: np.random.Generator) -> FloatArray:
    """Return rows whose cells come from the pool, each column on its own."""
    made = np.empty((count, SCHEMA.width))
    for place in SCHEMA.places:
        made[:, place] = pool[rng.integers(len(pool), size=count)][:, place]
    return made


def usual(pool: Array, count: int, rng: np.random.Generator) -> FloatArray:
    """Return one row as often: each column's most frequent level, or its median."""
    middle = np.where(SCHEMA.numbers, np.median(pool, axis=0), pool.mean(axis=0))
    return np.repeat(SCHEMA.snap(middle[None]), count, axis=0)


def compare(found: Tally, client: Records, result: Reconstruction, scale: FloatArray) -> None:
    """Score a batch; a record without a candidate has no value right."""
    found.converged.append(result.status is Status.CONVERGED)
    places = match(client.x, result.samples, RMSE(scale=scale)).indices
    there = places >= 0
    scores = np.zeros((4, len(client)))
    if there.any():
        pair = client.x[there], result.samples[places[there]]
        for i, (metric, tolerance) in enumerate(
            [(m, t) for m in (ValuesRight, RecordsRight) for t in (0.319, 0.01)]
        ):
            scores[i, there] = metric(schema=SCHEMA, scale=scale, tolerance=tolerance)(*pair)
        if result.cell_confidence is not None:
            right = ValuesRight(schema=SCHEMA, scale=scale).right(*pair)
            certainty = result.cell_confidence[places[there]]
            found.sure.append(certainty[right])
            found.unsure.append(certainty[~right])
    for name, values in zip(
        ("values", "close", "records", "close_records"), scores.tolist(), strict=True
    ):
        getattr(found, name).extend(values)
    if result.labels is not None:
        labels = np.where(there, result.labels[places], -1)
        found.labels.extend((labels == client.labels).tolist())


def told(row: Row, found: Tally) -> str:
    def share(values: list[float] | list[bool]) -> str:
        return f"{np.mean(values):7.1%}" if values else "      –"

    sure, unsure = (np.concatenate([*p, []]) for p in (found.sure, found.unsure))
    area = f"{roc_area(sure, unsure).estimate:.2f}" if len(sure) and len(unsure) else "–"
    return (
        f"{row.name:<28}{row.size:4} {share(found.values)} {share(found.close)}"
        f" {share(found.records)} {share(found.close_records)} {share(found.labels)}"
        f" {share(found.converged)} {np.mean(found.seconds):7.1f}  {area}"
    )


if __name__ == "__main__":
    main()
