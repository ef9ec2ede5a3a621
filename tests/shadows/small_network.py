"""A network so small that shadow models take milliseconds, on real images at a quarter size."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from exhume.data import load
from exhume.models import MLP
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.records import Records
from exhume.protocol.release import Release
from exhume.training import SGD, Training

SHAPE = (7, 7)


@cache
def images() -> Records:
    """Fashion-MNIST at 7 × 7, means of 4 × 4 pixels: 3,000 of them."""
    data = load("fashion-mnist-small").train
    x = data.x.reshape(-1, 7, 4, 7, 4).mean(axis=(2, 4))
    return Records(x, data.labels)


def training(**changes: object) -> Training:
    """49-6-10, 15 epochs: deterministic unless changed."""
    plain = Training(MLP(SHAPE, 10, hidden=(6,)), tuple(range(10)), SGD(0.1, 0.9), epochs=15)
    return replace(plain, **changes)  # type: ignore[arg-type]


def fixed_set(count: int = 60) -> Records:
    """The adversary's own records."""
    return images().take(np.arange(count))


def shadow_targets(count: int = 150) -> Records:
    """Records like the targets, disjoint from the fixed set."""
    return images().take(np.arange(500, 500 + count))


def targets(count: int = 3) -> Records:
    """The truth."""
    return images().take(np.arange(2500, 2500 + count))


def releases(mechanism: Mechanism, count: int = 3) -> list[Release]:
    """One release per target."""
    streams = [np.random.default_rng([7, i]) for i in range(count)]
    return list(mechanism.publish_each(fixed_set(), targets(count), rngs=streams))


def knowledge(mechanism: Mechanism, **changes: object) -> Knowledge:
    """All that the informed adversary has."""
    plain = Knowledge(
        record_shape=SHAPE,
        value_range=(0.0, 1.0),
        training=mechanism,
        fixed_set=fixed_set(),
        shadow_targets=shadow_targets(),
    )
    return replace(plain, **changes)  # type: ignore[arg-type]
