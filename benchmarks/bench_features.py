"""Features from a wide head's gradient: first order, tensor method and fit, side by side.

Four tables. (1) The √(d/m) law of the tensor method on the paper's two-layer network, next to Liu
et al. 2024's rate B√(d/m). (2) Features of norm 1, d = 512, 10 classes, 16,384 random ReLUs, with
and without defences. (3) Features of CIFAR-10 images before the head of a small convolutional
network (d = 128) that is trained here for a few hundred steps, with 4,096 random ReLUs planted
after it. (4) The same for a ResNet-18, from the gradient that the whole network releases in train
mode; its head has 2,048 trained units and random ones (Liu et al. 2024, appendix F). Width 16
(d = 128) and full width (d = 512). Labels are known. The residual is the mean norm of the part of a
feature of norm 1 outside the span of the recovered features; the paper's Table 2 has .171–.175
undefended, and with noise .1 at B = 4 .714. Noise is the standard deviation added to each entry,
pruning the share of entries set to 0. Times are processor times on one thread.

    python benchmarks/bench_features.py [--quick] [--only 1 2 3 4]
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from threadpoolctl import threadpool_limits

from exhume.attacks.gradients.features import (
    FeatureSearchSettings,
    Head,
    ResponseKind,
    matched_cosines,
    planted_head,
    projection_residual,
    recover_features,
)
from exhume.attacks.gradients.features.first_order import first_order
from exhume.attacks.gradients.features.tensor_method import tensor_features
from exhume.bounds.floors import liu
from exhume.models import Activation
from exhume.protocol.records import Records
from exhume.training.gradient import GradientStep

CLASSES = 10


@dataclass(frozen=True)
class Defence:
    """Change of the gradient: noise of this size, then this share pruned."""

    noise: float = 0.0
    pruned: float = 0.0

    def __str__(self) -> str:
        if self.pruned:
            return f"pruned {self.pruned:g}"
        return f"noise {self.noise:g}" if self.noise else "none"

    def apply(self, gradient: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        gradient = gradient + self.noise * rng.standard_normal(gradient.shape)
        if self.pruned:
            limit = np.quantile(np.abs(gradient), self.pruned)
            gradient = np.where(np.abs(gradient) < limit, 0.0, gradient)
        return gradient


@dataclass(frozen=True)
class Reached:
    """Projection residual and worst matched cosine (NaN: a span only), and the seconds."""

    residual: float
    cosine: float
    seconds: float

    def __str__(self) -> str:
        cosine = f"{self.cosine:6.3f} " if np.isfinite(self.cosine) else ""
        return f"{self.residual:6.4f} {cosine}{self.seconds:6.1f}s"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="smaller heads and batches")
    parser.add_argument("--only", type=int, nargs="+", default=[1, 2, 3, 4], help="tables")
    options = parser.parse_args()
    quick = options.quick
    tables: dict[int, Callable[[], None]] = {
        1: lambda: law([1024, 4096] if quick else [4096, 16384]),
        2: lambda: unit_features(*((64, 2048) if quick else (512, 16384))),
        3: lambda: image_features(1024 if quick else 4096, 100 if quick else 400),
        4: lambda: residual_features(quick),
    }
    for number in options.only:
        tables[number]()


def law(widths: list[int], *, dimension: int = 64, batch: int = 4, trials: int = 3) -> None:
    """Measure the error of the tensor method (Liu et al. 2024, equation 2) against √(d/m)."""
    print(f"1. tensor method, squared error, ReLU + tanh, d = {dimension}, B = {batch}")
    print("       m   error  error/√(d/m)  error/(B√(d/m))      time")
    for width in widths:
        errors, seconds = [], 0.0
        for trial in range(trials):
            error, spent = _law_trial(width, dimension, batch, np.random.default_rng(trial))
            errors.append(error)
            seconds += spent / trials
        error = float(np.mean(errors))
        rate = liu.no_defence(
            liu.TwoLayerBatch(dimension=dimension, width=width, batch=batch)
        ).upper
        root = np.sqrt(dimension / width)
        ratios = f"{error / root:12.2f}  {error / rate:15.2f}"
        print(f"  {width:6d}  {error:6.3f}  {ratios}  {seconds:7.1f}s")


def _law_trial(
    width: int, dimension: int, batch: int, rng: np.random.Generator
) -> tuple[float, float]:
    head = Head(
        weights=rng.standard_normal((width, dimension)),
        activation=Activation.RELU_PLUS_TANH,
        response=ResponseKind.NUMBERS,
        output=rng.standard_normal((1, width)) / width,
    )
    features = _unit(rng.standard_normal((batch, dimension)))
    gradient = head.gradient(features, rng.choice([-1.0, 1.0], batch), 1)
    start = time.process_time()
    found = tensor_features(head, gradient, batch, rng=rng).features
    spent = time.process_time() - start
    found = found[matched_cosines(features, found).indices]
    return float(np.sqrt(np.mean(((features - found) ** 2).sum(axis=1)))), spent


def unit_features(dimension: int, width: int) -> None:
    """Measure random features of norm 1, with distinct labels as far as there are classes."""
    print(f"\n2. features of norm 1, d = {dimension}, m = {width}, A rows k/m")
    rng = np.random.default_rng(0)
    weights, output, _ = _random_head(dimension, width, 1.0, rng)
    head = Head(weights=weights, output=output)
    plan = [(b, Defence()) for b in (1, 4, 8, 16)]
    plan += [(4, d) for d in (Defence(0.001), Defence(0.01), Defence(0.1), Defence(pruned=0.9))]
    plan += [(8, Defence(pruned=0.9))]
    _header()
    for batch, defence in plan:
        features = _unit(rng.standard_normal((batch, dimension)))
        labels = np.resize(rng.permutation(CLASSES), batch)
        _row(head, features, labels, defence, rng)


def image_features(width: int, steps: int) -> None:
    """Measure real features: those of CIFAR-10 images in a small trained network."""
    if "EXHUME_DATA" not in os.environ:
        print("\n3. skipped: set EXHUME_DATA to the folder that holds CIFAR-10")
        return
    rng = np.random.default_rng(1)
    features, labels, accuracy = trained_features(steps)
    norm = float(np.linalg.norm(features, axis=1).mean())
    unit = _unit(features)
    alike = float(np.mean((unit @ unit.T)[~np.eye(len(unit), dtype=bool)]))
    print(f"\n3. features of CIFAR-10 images, d = {features.shape[1]}, m = {width}")
    print(f"   network trained {steps} steps: accuracy {accuracy:.2f} on the images attacked;")
    print(f"   mean norm {norm:.2f}, mean cosine between features {alike:.2f}")
    weights, output, _ = _random_head(features.shape[1], width, norm, rng)
    head = Head(weights=weights, output=output)
    plan = [(b, Defence()) for b in (2, 4, 8, 16)]
    plan += [(4, d) for d in (Defence(0.001), Defence(0.01), Defence(0.1), Defence(pruned=0.9))]
    plan += [(8, Defence(pruned=0.9))]
    _header()
    for batch, defence in plan:
        chosen = rng.permutation(len(features))[:batch]
        _row(head, features[chosen], labels[chosen], defence, rng)


def residual_features(quick: bool) -> None:
    """Measure a ResNet-18's features of CIFAR-10 images, from its released gradient."""
    if "EXHUME_DATA" not in os.environ:
        print("\n4. skipped: set EXHUME_DATA to the folder that holds CIFAR-10")
        return
    import torch

    from exhume.data import load

    torch.set_num_threads(1)
    data = load("cifar-10")
    assert data.test is not None
    plan = [(16, 20, 16, 2048)] if quick else [(16, 300, 64, 16384), (64, 100, 16, 16384)]
    for width, steps, batch_size, units in plan:
        victim = planted_resnet(data.train, width, steps, batch_size, units)
        for size in (1, 2) if quick else (1, 2, 4, 8):
            _residual_row(victim, data.test, size, classes=size)
        _residual_row(victim, data.test, 4, classes=2)


@dataclass(frozen=True, eq=False)
class Victim:
    """A ResNet's step, the adversary's knowledge of its head, and the name of the head's input."""

    step: GradientStep
    head: Head
    layer: str = "head.hidden"

    def features(self, batch: Records) -> np.ndarray:
        """Return the inputs of the head, (B, d)."""
        import torch

        objective = self.step.objective("float64")
        seen: list[np.ndarray] = []
        hook = objective.module.get_submodule(self.layer).register_forward_pre_hook(
            lambda _, inputs: seen.append(inputs[0].numpy())
        )
        with torch.no_grad():
            objective.scores(
                objective.flat(self.step.parameters()), objective.tensor(np.asarray(batch.x))
            )
        hook.remove()
        return seen[0]


def planted_resnet(
    train: Records, width: int, steps: int, batch_size: int, units: int, trained: int = 2048
) -> Victim:
    """Train a ResNet-18 with a head of ``trained`` units, and widen the head to ``units``."""
    from exhume.models.resnet import ResNet
    from exhume.training.warm_up import train_a_little

    trained = min(trained, units // 2)
    narrow = ResNet((32, 32, 3), CLASSES, width=width, wide_head=trained)
    state = train_a_little(narrow, train, steps, batch_size=batch_size)
    small = Victim(
        GradientStep(narrow, tuple(range(CLASSES)), state=state.parameters), Head(weights=np.eye(1))
    )
    norm = float(np.linalg.norm(small.features(train.take(range(64))), axis=1).mean())
    hidden, output = (
        np.asarray(state.parameters[f"head.{n}.weight"], dtype=np.float64)
        for n in ("hidden", "output")
    )
    weights, outputs, random = planted_head(
        hidden, output, width=units, feature_norm=norm, rng=np.random.default_rng(3)
    )
    wide = state.parameters | {"head.hidden.weight": weights, "head.output.weight": outputs}
    step = GradientStep(
        replace(narrow, wide_head=units),
        tuple(range(CLASSES)),
        state={n: np.asarray(a, dtype=np.float32) for n, a in wide.items()},
    )
    offsets = np.asarray(state.parameters["head.output.bias"], dtype=np.float64)
    print(f"\n4. {narrow.describe()}, {steps} steps of {batch_size}: {state.accuracy:.0%} right")
    print(
        f"   d = {narrow.features}, m = {units}, of which {trained} trained; mean norm {norm:.2f}"
    )
    parameters = step.parameters()
    head = Head(
        weights=np.asarray(parameters["head.hidden.weight"], dtype=np.float64),
        output=np.asarray(parameters["head.output.weight"], dtype=np.float64),
        output_offsets=offsets,
        random=random,
    )
    return Victim(step, head)


def _residual_row(victim: Victim, images: Records, size: int, *, classes: int) -> None:
    """Measure five batches of test images of ``classes`` different classes."""
    rng = np.random.default_rng([size, classes])
    firsts, fits, cosines, seconds, certain = [], [], [], [], 0
    for _ in range(5):
        labels = np.resize(rng.permutation(CLASSES)[:classes], size)
        order, batch = rng.permutation(len(images)), list[int]()
        for label in labels:
            batch += [next(i for i in order if images.labels[i] == label and i not in batch)]
        records = images.take(batch)
        features = victim.features(records)
        gradient = victim.step.publish(records, rng=rng).gradients["head.output.weight"]
        gradient = np.asarray(gradient, dtype=np.float64)
        firsts.append(
            projection_residual(features, first_order(victim.head, gradient.T).span(size))
        )
        start = time.process_time()
        found = recover_features(gradient, victim.head, size, labels=records.labels, rng=rng)
        seconds.append(time.process_time() - start)
        fits.append(projection_residual(features, found.features))
        cosines.append(matched_cosines(features, found.features).cosines.min())
        certain += found.certain
    print(
        f"   B = {size}, {classes} classes: "
        f"first order {np.mean(firsts):.3f} [{max(firsts):.3f}], "
        f"fit {np.mean(fits):.4f} [{max(fits):.4f}], worst cosine {min(cosines):.3f}, "
        f"{np.mean(seconds):.1f} s, {certain} of 5 certain",
        flush=True,
    )


def trained_features(steps: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Train a network of three convolutions; return held-out images' last features and labels."""
    import torch
    from torch import nn

    from exhume.data import load

    torch.set_num_threads(1)
    data = load("cifar-10").train
    x = torch.tensor(np.asarray(data.x, dtype=np.float32)).movedim(-1, 1) - 0.5
    y = torch.tensor(np.asarray(data.labels), dtype=torch.long)
    held_out = len(x) - 512
    drawn = torch.Generator().manual_seed(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        body = nn.Sequential(
            *(nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU()),
            *(nn.Conv2d(64, 128, 3, 1, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        )
        top = nn.Linear(128, CLASSES)
    optimiser = torch.optim.Adam([*body.parameters(), *top.parameters()], lr=3e-3)
    for _ in range(steps):
        chosen = torch.randint(held_out, (64,), generator=drawn)
        loss = nn.functional.cross_entropy(top(body(x[chosen])), y[chosen])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        features = body(x[held_out:])
        accuracy = float((top(features).argmax(dim=1) == y[held_out:]).float().mean())
    return features.double().numpy(), y[held_out:].numpy(), accuracy


def _random_head(
    dimension: int, width: int, norm: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    nothing = np.empty((0, dimension)), np.empty((CLASSES, 0))
    return planted_head(*nothing, width=width, feature_norm=norm, rng=rng)


def _header() -> None:
    print("   B  defence     RMS(G) |  first order    |     tensor method     |          fit")
    print(
        "                         |  resid    time  |  resid   cos    time  |  resid   cos    time"
    )


def _row(
    head: Head,
    features: np.ndarray,
    labels: np.ndarray,
    defence: Defence,
    rng: np.random.Generator,
) -> None:
    batch = len(features)
    clean = head.gradient(features, labels, CLASSES)
    gradient = defence.apply(clean, rng)
    seed = np.random.default_rng(2)
    first = replace(
        _reached(features, lambda: first_order(head, gradient).span(batch)), cosine=np.nan
    )
    tensor = _reached(features, lambda: tensor_features(head, gradient, batch, rng=seed).features)
    settings = FeatureSearchSettings(restarts=4)
    fit = _reached(
        features,
        lambda: (
            recover_features(
                gradient.T, head, batch, labels=labels, settings=settings, rng=seed
            ).features
        ),
    )
    size = float(np.sqrt(np.mean(clean**2)))
    print(f"  {batch:2d}  {defence!s:11s} {size:6.3f} | {first}  | {tensor} | {fit}", flush=True)


def _reached(features: np.ndarray, method: Callable[[], np.ndarray]) -> Reached:
    start = time.process_time()
    found = method()
    spent = time.process_time() - start
    enough = len(found) >= len(features)
    cosine = float(matched_cosines(features, found).cosines.min()) if enough else np.nan
    return Reached(projection_residual(features, found), cosine, spent)


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


if __name__ == "__main__":
    with threadpool_limits(limits=1):
        main()
