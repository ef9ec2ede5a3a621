"""The portfolio and the generative prior on CIFAR-10, labels known or inferred from the gradient.

The victims, batches and measures are those of ``bench_matching.py``. The adversary also has 2,000
training images (shadow targets), on which the generator is trained within the time shown. One
thread; seconds are of the processor. "labels" counts those of the answer that are right.

    EXHUME_DATA=... python benchmarks/bench_portfolio.py --attack portfolio --seconds 40
    EXHUME_DATA=... python benchmarks/bench_portfolio.py --attack generative-prior --infer
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from bench_matching import build, different, known, mean_colour, psnr

from exhume.attacks import Attack
from exhume.attacks.matching import GenerativePrior
from exhume.attacks.portfolio import Portfolio
from exhume.data import load
from exhume.records import Records

SHADOWS = 2000


def main() -> None:
    torch.set_num_threads(1)
    options = parsed()
    data = load("cifar-10")
    assert data.test is not None
    shadows = data.train.take(slice(0, SHADOWS))
    every: list[float] = []
    for number in range(options.rounds):
        batch = different(data.test, options.first + 40 * number, options.batch)
        every += attacked(options, batch, shadows, number)
    print(f"mean {np.mean(every):.1f} dB of {len(every)} images")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--attack", choices=("portfolio", "generative-prior"), default="portfolio")
    add("--victim", choices=("lenet", "convnet", "resnet"), default="convnet")
    add("--batch", type=int, default=4)
    add("--rounds", type=int, default=3, help="batches, each with a seed of its own")
    add("--first", type=int, default=1200, help="where in the test set to begin")
    add("--seconds", type=float, default=40.0, help="the portfolio's budget")
    add("--width", type=int, default=16, help="of the ResNet")
    add("--trained", type=int, default=300, help="steps that the ResNet was trained for")
    add("--keep", type=Path, help="folder to keep trained networks in")
    add("--infer", action="store_true", help="labels are not known")
    return parser.parse_args()


def attacked(
    options: argparse.Namespace, batch: Records, shadows: Records, seed: int
) -> list[float]:
    """Attack one batch, print a line, and return each image's PSNR."""
    step = build(options.victim, seed, options)
    attack: Attack = GenerativePrior()
    if options.attack == "portfolio":
        attack = Portfolio(seconds=options.seconds)
    knowledge = replace(known(step, batch), shadow_targets=shadows)
    if options.infer:
        knowledge = replace(knowledge, labels=None)
    release = step.publish(batch, rng=np.random.default_rng(seed))
    begun = time.process_time()
    found = attack.reconstruct(release, knowledge, rng=seed)
    seconds = time.process_time() - begun
    reached = psnr(batch, found.samples)
    right = 0
    if found.labels is not None:
        right = (Counter(found.labels.tolist()) & Counter(batch.labels.tolist())).total()
    told = f" {found.stats['chosen']} chosen" if "chosen" in found.stats else ""
    print(
        f"{options.victim} {attack.name}{told}: {reached.mean():.1f} dB "
        f"[{reached.min():.1f} - {reached.max():.1f}], mean colour {mean_colour(batch).mean():.1f} "
        f"dB, {right} of {len(batch)} labels, {seconds:.0f} CPU-s, {found.status.name}",
        flush=True,
    )
    return [float(value) for value in reached]


if __name__ == "__main__":
    main()
