"""The portfolio and the generative prior on CIFAR-10, labels known or inferred from the gradient.

The victims, batches and measures are those of ``bench_matching.py``. The adversary also has 2,000
training images (shadow targets); training the generator on them is included in the time. One
thread; seconds are processor seconds. "labels" counts the correct labels of the answer.

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
from exhume.attacks.gradients.matching import GenerativePrior
from exhume.attacks.gradients.portfolio import Portfolio
from exhume.data import load
from exhume.protocol.records import Records

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
    add("--rounds", type=int, default=3, help="number of batches, each with its own seed")
    add("--first", type=int, default=1200, help="first image in the test set")
    add("--seconds", type=float, default=40.0, help="the portfolio's budget")
    add("--width", type=int, default=16, help="width of the ResNet")
    add("--trained", type=int, default=300, help="training steps of the ResNet")
    add("--keep", type=Path, help="folder to keep trained networks in")
    add("--infer", action="store_true", help="infer the labels instead of knowing them")
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
