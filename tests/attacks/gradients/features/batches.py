"""Heads with random weights and batches of features, as small as the tests allow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exhume.attacks.gradients.features import Head, ResponseKind
from exhume.models import Activation


@dataclass(frozen=True, eq=False)
class Batch:
    """A head, the features that it saw, their responses, and the gradient (K, m) they left."""

    head: Head
    features: np.ndarray
    labels: np.ndarray
    gradient: np.ndarray


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def classes(
    count: int,
    *,
    dimension: int = 32,
    width: int = 1024,
    outputs: int = 10,
    activation: Activation = Activation.RELU,
    repeats: bool = False,
    alike: float = 0.0,
    seed: int = 0,
) -> Batch:
    """A cross-entropy head with A rows k/m (Liu et al. 2024, appendix F); ``alike`` features."""
    rng = np.random.default_rng([seed, count, dimension])
    weights = rng.standard_normal((width, dimension))
    output = np.repeat(np.arange(outputs)[:, None] / width, width, axis=1)
    head = Head(weights=weights, activation=activation, output=output)
    labels = rng.integers(0, outputs, count) if repeats else rng.permutation(outputs)[:count]
    common = np.abs(rng.standard_normal(dimension))
    features = unit(rng.standard_normal((count, dimension)) + alike * common)
    return Batch(head, features, labels, head.gradient(features, labels, outputs).T)


def numbers(
    count: int,
    *,
    dimension: int = 32,
    width: int = 1024,
    activation: Activation = Activation.RELU_PLUS_TANH,
    seed: int = 0,
) -> Batch:
    """The paper's network for the squared error: responses ±1, A ~ N(0, 1/m²)."""
    rng = np.random.default_rng([seed, count, dimension])
    weights = rng.standard_normal((width, dimension))
    output = rng.standard_normal((1, width)) / width
    head = Head(
        weights=weights, activation=activation, response=ResponseKind.NUMBERS, output=output
    )
    features = unit(rng.standard_normal((count, dimension)))
    labels = rng.choice([-1.0, 1.0], count)
    return Batch(head, features, labels, head.gradient(features, labels, 1).T)
