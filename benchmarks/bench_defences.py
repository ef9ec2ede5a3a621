"""Defences of a gradient against an adversary that ignores them, and against an adaptive one.

(1) Gradient matching on CIFAR-10: a ConvNet at its initialisation, batches of four test images of
different classes, labels known, Geiping's attack of ``--steps`` steps, at the strengths of Liu et
al. 2024, Table 4. "ignoring" assumes an unprotected release, and treats local steps as one gradient
of their mean. PSNR is in dB, mean over images; "mean colour" is the PSNR of an adversary who knows
only each image's mean colour.

(2, 3) Features from a wide head's gradient, by the measure of Table 2: the mean norm of the part of
a feature of norm 1 outside the span of the recovered features. First order and tensor method both
treat pruned entries as 0. The fit excludes pruned entries and knows that they are small. Mean and
standard error over batches of different classes, labels known. (2) has features of norm 1 and
m = 32 d random ReLUs. (3) has those of CIFAR-10 images before the head of a ResNet-18 (width 16,
d = 128, 100 steps), from its released gradient, which is pruned or noised as a whole.

    EXHUME_DATA=... python benchmarks/bench_defences.py [--only 1 2 3] [--batches N] [--steps N]
        [--rows NAME ...] [--sizes B ...] [--dimension D]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
from bench_features import CLASSES, Victim, _random_head, _unit, planted_resnet
from bench_matching import SHAPE, different, mean_colour, psnr
from threadpoolctl import threadpool_limits

from exhume.attacks.gradients.features import (
    FeatureSearchSettings,
    Head,
    projection_residual,
    recover_features,
)
from exhume.attacks.gradients.features.first_order import first_order
from exhume.attacks.gradients.features.tensor_method import tensor_features
from exhume.attacks.gradients.matching import Geiping
from exhume.data import load
from exhume.defences import (
    Clipping,
    GradientDropout,
    MixUp,
    Noise,
    Pruning,
    RecordClipping,
    Rounds,
    Sign,
)
from exhume.models.convnet import ConvNet
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.records import Records
from exhume.protocol.release import Gradient
from exhume.training.gradient import GradientStep
from exhume.training.local_steps import LocalSteps
from exhume.training.optimisers import SGD

FIRST = 1400
"""Start of the batches in the test set; the attack's weights were tuned on training images."""
RATE, WIDTH = 0.1, 16
NOISE, PRUNED = (0.001, 0.01, 0.05, 0.1), (0.3, 0.5, 0.7, 0.9, 0.99)


def main() -> None:
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", type=int, nargs="+", default=[1, 2, 3], help="tables")
    parser.add_argument("--batches", type=int, help="batches per row (default: 1, 5, 5)")
    parser.add_argument("--steps", type=int, default=300, help="steps of Geiping's attack")
    parser.add_argument(
        "--rows", nargs="+", default=[""], help="defences whose name contains one of these"
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 4, 8], help="B of (2) and (3)")
    parser.add_argument("--dimension", type=int, default=128, help="d of (2); m is 32 d")
    options = parser.parse_args()
    tables: dict[int, Callable[[], None]] = {
        1: lambda: matching(options),
        2: lambda: unit_features(options),
        3: lambda: image_features(options),
    }
    for number in options.only:
        tables[number]()


def victim_of(seed: int) -> GradientStep:
    """Return the step of a ConvNet of half the usual width, at PyTorch's initialisation."""
    network = ConvNet(SHAPE, CLASSES, width=WIDTH)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = network.build()
    drawn = {n: p.detach().numpy() for n, p in module.named_parameters()}
    return GradientStep(network, tuple(range(CLASSES)), state=drawn)


def stacks(step: GradientStep) -> Iterator[tuple[str, Mechanism]]:
    """Yield the defences of Table 4, and those that only an adaptive adversary breaks."""
    yield "none", step
    for share in PRUNED:
        yield f"pruning {share}", Pruning(step, share)
    for norm in (2.0, 0.2):
        yield f"clipping {norm:g}", Clipping(step, norm)
    for size in NOISE:
        yield f"noise {size}", Noise(step, size)
    yield "noise 0.01, 25 rounds", Rounds(Noise(step, 0.01), 25)
    for rate in (0.3, 0.5, 0.7, 0.9):
        yield f"dropout {rate}", GradientDropout(step, rate)
    for count in (3, 5):
        yield f"local steps {count}", LocalSteps(step, SGD(RATE), count)
    yield "record clipping 0.2", RecordClipping(step, 0.2)
    yield "signs", Sign(step)
    yield "mixup 1", MixUp(step, 1.0)


def chosen(name: str, options: argparse.Namespace) -> bool:
    """Whether a row was requested."""
    return any(part in name for part in options.rows)


def matching(options: argparse.Namespace) -> None:
    """Attack every stack with both adversaries."""
    batches, steps = options.batches or 1, options.steps
    test = load("cifar-10").test
    assert test is not None
    print(f"1. ConvNet, B = 4, {batches} batches, {steps} steps; PSNR mean [min - max]")
    print("  defence                 ignoring               adaptive          mean colour   CPU-s")
    for name in [n for n, _ in stacks(victim_of(0)) if chosen(n, options)]:
        ignored, adapted, colours, seconds = list[float](), list[float](), list[float](), 0.0
        for number in range(batches):
            batch = different(test, FIRST + 40 * number, 4)
            mechanism = dict(stacks(victim_of(number)))[name]
            start = time.process_time()
            for found, adaptive in ((ignored, False), (adapted, True)):
                found += _attacked(mechanism, batch, steps, number, adaptive=adaptive)
            seconds += time.process_time() - start
            colours += mean_colour(batch).tolist()
        parts = [f"{np.mean(f):5.2f} [{min(f):5.2f} - {max(f):5.2f}]" for f in (ignored, adapted)]
        print(
            f"  {name:22s} {'  '.join(parts)}   {np.mean(colours):8.2f}  {seconds:7.1f}", flush=True
        )


def _attacked(
    mechanism: Mechanism, batch: Records, steps: int, seed: int, *, adaptive: bool
) -> list[float]:
    release = mechanism.publish(batch, rng=np.random.default_rng(seed))
    training = mechanism
    if isinstance(mechanism, LocalSteps) and not adaptive:
        training = mechanism.client
        whole = {n: -a / (RATE * mechanism.epochs) for n, a in release.arrays()}
        release = Gradient(whole, len(batch))
    knowledge = Knowledge(
        record_shape=SHAPE, value_range=(0.0, 1.0), training=training, labels=batch.y
    )
    attack = Geiping(steps=steps, adaptive=adaptive)
    found = attack.reconstruct(release, knowledge, rng=seed)
    return [float(value) for value in psnr(batch, found.samples)]


def defences() -> list[tuple[str, Callable[[Mechanism], Mechanism]]]:
    """Return the defences of Table 2 by name."""
    found: list[tuple[str, Callable[[Mechanism], Mechanism]]] = [("none", lambda inner: inner)]
    found += [(f"noise {s}", lambda inner, s=s: Noise(inner, s)) for s in NOISE]
    found += [(f"pruning {p}", lambda inner, p=p: Pruning(inner, p)) for p in PRUNED]
    return found


def unit_features(options: argparse.Namespace) -> None:
    """Measure random features of norm 1, with distinct labels."""
    batches, dimension = options.batches or 5, options.dimension
    width = 32 * dimension
    weights, output, _ = _random_head(dimension, width, 1.0, np.random.default_rng(0))
    head = Head(weights=weights, output=output)
    print(f"\n2. features of norm 1, d = {dimension}, m = {width}, {batches} batches")
    _header()
    for size in options.sizes:
        for name, defence in [d for d in defences() if chosen(d[0], options)]:
            rng = np.random.default_rng([7, size])
            rows = []
            for _ in range(batches):
                features = _unit(rng.standard_normal((size, dimension)))
                labels = rng.permutation(CLASSES)[:size]
                gradient = head.gradient(features, labels, CLASSES).T
                sent = _sent(defence, {"head": gradient}, rng)["head"]
                rows.append(_errors(head, features, labels, sent, rng, tensor=size > 1))
            _show(size, name, rows)


def image_features(options: argparse.Namespace) -> None:
    """Measure a ResNet-18's features of CIFAR-10 images, from its whole released gradient."""
    batches = options.batches or 5
    data = load("cifar-10")
    assert data.test is not None
    victim = planted_resnet(data.train, 16, 100, 32, 8192)
    print(f"3. its features, {batches} batches; the whole gradient is protected")
    _header()
    for size in options.sizes:
        for name, defence in [d for d in defences() if chosen(d[0], options)]:
            rng = np.random.default_rng([8, size])
            rows = [_image_row(victim, data.test, size, defence, rng) for _ in range(batches)]
            _show(size, name, rows)


def _image_row(
    victim: Victim,
    images: Records,
    size: int,
    defence: Callable[[Mechanism], Mechanism],
    rng: np.random.Generator,
) -> list[float]:
    records = different(images, int(rng.integers(len(images) - 400)), size)
    features = victim.features(records)
    sent = defence(victim.step).publish(records, rng=rng)
    gradient = np.asarray(dict(sent.arrays())["head.output.weight"], dtype=np.float64)
    return _errors(victim.head, features, records.labels, gradient, rng, tensor=False)


def _sent(
    defence: Callable[[Mechanism], Mechanism],
    arrays: dict[str, np.ndarray],
    rng: np.random.Generator,
) -> dict[str, np.ndarray]:
    """Return the release of a client whose gradient is ``arrays``."""

    class Given(Mechanism):
        def publish(self, data: Records, *, rng: np.random.Generator) -> Gradient:
            return Gradient(arrays, 1)

    nobody = Records(np.zeros((1, 1)))
    return {n: np.asarray(a) for n, a in defence(Given()).publish(nobody, rng=rng).arrays()}


def _errors(
    head: Head,
    features: np.ndarray,
    labels: np.ndarray,
    gradient: np.ndarray,
    rng: np.random.Generator,
    *,
    tensor: bool,
) -> list[float]:
    """Return the projection residuals of first order, tensor method (NaN: skipped) and fit."""
    size = len(features)
    first = projection_residual(features, first_order(head, gradient.T).span(size))
    moment = np.nan
    if tensor:
        moment = projection_residual(
            features, tensor_features(head, gradient.T, size, rng=rng).features
        )
    found = recover_features(
        gradient, head, size, labels=labels, settings=FeatureSearchSettings(restarts=3), rng=rng
    )
    return [first, moment, projection_residual(features, found.features)]


def _header() -> None:
    print("   B  defence        first order     tensor method   fit             (mean ± s.e.)")


def _show(size: int, name: str, rows: list[list[float]]) -> None:
    table = np.asarray(rows)
    means, errors = table.mean(axis=0), table.std(axis=0, ddof=1) / np.sqrt(len(table))
    cells = [f"{m:6.4f} ± {e:6.4f}" for m, e in zip(means, errors, strict=True)]
    print(f"  {size:2d}  {name:13s} {'  '.join(cells)}", flush=True)


if __name__ == "__main__":
    with threadpool_limits(limits=1):
        main()
