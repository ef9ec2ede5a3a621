"""Training records as the upper level of training itself (Runkel et al. 2024)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.attacks.base import Attack
from exhume.attacks.starts import Start, UniformStart
from exhume.errors import InputError
from exhume.knowledge import Knowledge
from exhume.models.mlp import MLP
from exhume.reconstruction import Reconstruction, Status
from exhume.release import Release, Weights
from exhume.training.stationary import CENTRE, Stationary

Level = Callable[[FloatArray], tuple[float, FloatArray]]
"""Records in; ‖θ(x) − θ*‖² and its gradient in the records out."""


@dataclass(frozen=True)
class Bilevel(Attack):
    """Changes records until training on them gives the released parameters.

    min over x of ‖θ* − θ(x)‖², θ(x) being the result of training on x, by Adam with the value range
    as a box; the gradient comes from the implicit function theorem. ``records`` is how many there
    were (None: as many as labels are known). The answer depends on ``start``: every reconstruction
    ends nearest to where it began, and a small distance of the parameters does not make it real.
    """

    records: int | None = None
    start: Start = field(default_factory=UniformStart)
    steps: int = 400
    rate: float = 0.01
    lower_steps: int = 40
    products: int = 30
    name: ClassVar[str] = "bilevel"

    def __post_init__(self) -> None:
        for what in ("steps", "lower_steps", "products"):
            if getattr(self, what) < 1:
                raise InputError(f"{what} must be at least 1, got {getattr(self, what)}")
        if self.records is not None and self.records < 1:
            raise InputError(f"records must be at least 1, got {self.records}")
        if not self.rate > 0:
            raise InputError(f"rate must be positive, got {self.rate}")

    def accepts(self, release: Release, knowledge: Knowledge) -> str | None:
        """Ask for weights that were trained until nothing moved, and for how many records."""
        if not isinstance(release, Weights):
            return f"it reads weights, not a release of the kind {type(release).__name__}"
        training = knowledge.training
        if not isinstance(training, Stationary):
            return "training must be known, and run until nothing moves (Stationary)"
        if self.records is None and knowledge.labels is None:
            return "the number of records must be given, or their labels"
        if training.network.record_shape != knowledge.record_shape:
            return (
                f"a record has shape {knowledge.record_shape}, "
                f"the network takes {training.network.record_shape}"
            )
        for name, shape in training.network.parameter_shapes().items():
            if name not in release.parameters or release.parameters[name].shape != shape:
                return f"there is no parameter {name!r} of shape {shape} in the release"
        return None

    def _reconstruct(
        self, release: Release, knowledge: Knowledge, rng: np.random.Generator
    ) -> Reconstruction:
        assert isinstance(release, Weights)
        assert isinstance(knowledge.training, Stationary)
        labels = knowledge.labels
        count = self.records or (0 if labels is None else len(labels))
        classes = _classes(knowledge.training, labels, count)
        centre = np.asarray(release.parameters.get(CENTRE, 0.0), dtype=np.float64)
        begun = self.start.draw(count, knowledge.record_shape, rng)
        if knowledge.value_range is not None:
            begun = np.clip(begun, *knowledge.value_range)
        level = self._level(release, knowledge.training, classes, centre, rng)
        samples, values = self._descend(level, begun, knowledge.value_range)
        size = sum(
            float(np.square(release.parameters[n]).sum())
            for n in knowledge.training.network.parameter_shapes()
        )
        return Reconstruction(
            samples,
            Status.APPROXIMATE,
            labels=np.asarray(knowledge.training.classes)[classes],
            message="near its own start; a small distance of parameters does not make it real",
            stats={
                "distance": values[1],
                "initial_distance": values[0],
                "size": size,
                "moved": float(np.sqrt(np.mean((samples - begun) ** 2))),
            },
        )

    def _descend(
        self, level: Level, x: FloatArray, value_range: tuple[float, float] | None
    ) -> tuple[FloatArray, tuple[float, float]]:
        """Take Adam's steps with a falling rate; return the best records, first and best value."""
        mean, square = np.zeros_like(x), np.zeros_like(x)
        best, first, lowest = x, math.nan, math.inf
        for step in range(self.steps):
            value, gradient = level(x)
            first = value if step == 0 else first
            if value < lowest:
                best, lowest = x, value
            mean = 0.9 * mean + 0.1 * gradient
            square = 0.999 * square + 0.001 * gradient**2
            size = np.sqrt(square / (1.0 - 0.999 ** (step + 1))) + 1e-12
            rate = self.rate * 0.5 * (1.0 + math.cos(math.pi * step / self.steps))
            x = x - rate * mean / (1.0 - 0.9 ** (step + 1)) / size
            if value_range is not None:
                x = np.clip(x, *value_range)
        return best, (first, lowest)

    def _level(
        self,
        release: Weights,
        training: Stationary,
        classes: Array,
        centre: FloatArray,
        rng: np.random.Generator,
    ) -> Level:
        network = training.network
        if isinstance(network, MLP) and not network.hidden and network.outputs == 1:
            return _affine(release, training, classes, centre)
        return self._network(release, training, classes, centre, rng)

    def _network(
        self,
        release: Weights,
        training: Stationary,
        classes: Array,
        centre: FloatArray,
        rng: np.random.Generator,
    ) -> Level:
        """Return the lower level of any network, each training begun where the last one ended."""
        import torch

        from exhume.attacks.bilevel.network import NetworkLevel

        level = NetworkLevel(
            training, torch.tensor(classes), steps=self.lower_steps, products=self.products
        )
        named = {n: release.parameters[n] for n in training.network.parameter_shapes()}
        target = level.objective.flat(named)
        # The released parameters are a start that everybody has; another start may end elsewhere.
        theta = [target.clone()]

        def evaluate(x: FloatArray) -> tuple[float, FloatArray]:
            records = torch.tensor(x - centre)
            theta[0] = level.train(records, theta[0])
            value, gradient = level.hypergradient(records, theta[0], target)
            return value, np.asarray(gradient.numpy())

        return evaluate


def _affine(release: Weights, training: Stationary, classes: Array, centre: FloatArray) -> Level:
    """Return the exact lower level of an affine classifier."""
    from exhume.attacks.bilevel.affine import AffineLevel

    parts = [np.asarray(release.parameters[n]).ravel() for n in ("1.weight", "1.bias")]
    target = np.concatenate(parts).astype(np.float64)
    level = AffineLevel(2.0 * classes - 1.0, training.weight_decay)
    theta: list[FloatArray | None] = [None]

    def evaluate(x: FloatArray) -> tuple[float, FloatArray]:
        flat = (x - centre).reshape(len(x), -1)
        theta[0] = found = level.train(flat, theta[0])
        value, gradient = level.hypergradient(flat, found, target)
        return value, gradient.reshape(x.shape)

    return evaluate


def _classes(training: Stationary, labels: Array | None, count: int) -> Array:
    """Return class indices (count,): the known ones in turn, or as many of each."""
    if labels is None:
        return np.arange(count) % len(training.classes)
    known = np.array([training.classes.index(label) for label in labels.tolist()])
    return np.asarray(known[np.arange(count) % len(known)])
