"""Training records as the upper level of training itself (Runkel et al. 2024)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.attacks.base import Attack
from exhume.attacks.kkt.counts import record_count
from exhume.attacks.kkt.network import HiddenLayer, missing, read, trained
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
    Trainings are ``warm``: each begins where the last one ended, which is cheap, and drifts into
    other minima than the released one; otherwise each begins at the released parameters and takes
    ten times as many ``lower_steps``. Affine classifiers of two classes are trained exactly, one
    hidden layer of ReLUs among the records, any other network as it is.
    """

    records: int | None = None
    start: Start = field(default_factory=UniformStart)
    steps: int = 400
    rate: float = 0.01
    lower_steps: int = 40
    products: int = 30
    warm: bool = True
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
        reason = missing(release, knowledge)
        if reason is not None:
            return reason
        training = resting_place(knowledge)
        if isinstance(training, str):
            return training
        if self._count(release, knowledge) is None:
            return "the number of records must be given, or their labels: nothing else tells it"
        return None

    def _count(self, release: Release, knowledge: Knowledge) -> int | None:
        """How many records there were: told, as many as labels, or as a hidden layer shows."""
        network = read(release, knowledge)
        if isinstance(network, HiddenLayer):
            return record_count(self.records, network, knowledge)
        return self.records or (None if knowledge.labels is None else len(knowledge.labels))

    def _reconstruct(
        self, release: Release, knowledge: Knowledge, rng: np.random.Generator
    ) -> Reconstruction:
        assert isinstance(release, Weights)
        training, count = resting_place(knowledge), self._count(release, knowledge)
        assert isinstance(training, Stationary)
        assert count is not None
        classes = _classes(training, knowledge.labels, count)
        centre = np.asarray(release.parameters.get(CENTRE, 0.0), dtype=np.float64)
        begun = self.start.draw(count, knowledge.record_shape, rng)
        if knowledge.value_range is not None:
            begun = np.clip(begun, *knowledge.value_range)
        level = self._level(release, replace(knowledge, training=training), classes, centre)
        samples, values = self._descend(level, begun, knowledge.value_range)
        size = sum(
            float(np.square(release.parameters[n]).sum())
            for n in training.network.parameter_shapes()
        )
        return Reconstruction(
            samples,
            Status.APPROXIMATE,
            labels=np.asarray(training.classes)[classes],
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
        self, release: Weights, knowledge: Knowledge, classes: Array, centre: FloatArray
    ) -> Level:
        """Return the lower level: exact, among the records, or of the network as it is."""
        training = knowledge.training
        assert isinstance(training, Stationary)
        network = training.network
        if isinstance(network, MLP) and not network.hidden and network.outputs < 3:
            return _affine(release, training, classes, centre)
        hidden = read(release, knowledge)
        if isinstance(hidden, HiddenLayer):
            return self._hidden(hidden, training, classes, centre)
        return self._network(release, training, classes, centre)

    def _hidden(
        self, target: HiddenLayer, training: Stationary, classes: Array, centre: FloatArray
    ) -> Level:
        """Return the lower level of one hidden layer, worked out among the records."""
        import torch

        from exhume.attacks.bilevel.hidden import HiddenLevel

        level = HiddenLevel(
            *(training, target, torch.tensor(classes)),
            steps=self.lower_steps,
            products=self.products,
            warm=self.warm,
        )

        def evaluate(x: FloatArray) -> tuple[float, FloatArray]:
            value, gradient = level.evaluate(torch.tensor((x - centre).reshape(len(x), -1)))
            return value, np.asarray(gradient.numpy()).reshape(x.shape)

        return evaluate

    def _network(
        self, release: Weights, training: Stationary, classes: Array, centre: FloatArray
    ) -> Level:
        """Return the lower level of any network, trained as it is."""
        import torch

        from exhume.attacks.bilevel.network import NetworkLevel

        level = NetworkLevel(
            training, torch.tensor(classes), steps=self.lower_steps, products=self.products
        )
        named = {n: release.parameters[n] for n in training.network.parameter_shapes()}
        target = level.objective.flat(named)
        # The released parameters are a start that everybody has; another start may end elsewhere.
        theta = [target]

        def evaluate(x: FloatArray) -> tuple[float, FloatArray]:
            records = torch.tensor(x - centre)
            start = theta[0] if self.warm else target
            theta[0] = level.train(records, start, settled=start is not target)
            value, gradient = level.hypergradient(records, theta[0], target)
            return value, np.asarray(gradient.numpy())

        return evaluate


def resting_place(knowledge: Knowledge) -> Stationary | str:
    """Return the problem that training solves where it comes to rest, or why there is none."""
    training = trained(knowledge)
    if training is None:
        return "training must be known"
    if isinstance(training, Stationary):
        return training
    if training.classes is None:
        return "it trains classifiers, and this is a regression"
    if training.clipping is not None:
        return "records' gradients were clipped: training comes to rest elsewhere"
    if not training.optimiser.weight_decay > 0:
        return "without weight decay training comes to rest nowhere"
    return Stationary(training.network, training.classes, training.optimiser.weight_decay)


def _affine(release: Weights, training: Stationary, classes: Array, centre: FloatArray) -> Level:
    """Return the exact lower level of an affine classifier."""
    from exhume.attacks.bilevel.affine import AffineLevel

    weight, bias = (np.asarray(release.parameters[f"1.{n}"]) for n in ("weight", "bias"))
    released = np.column_stack([weight, bias]).astype(np.float64)
    target, share, rest = released[0], 1.0, 0.0
    if len(released) == 2:
        # Only the difference of two outputs matters, and decay shares it out evenly: ±w/2.
        target, share = released[1] - released[0], 0.5
        rest = 0.5 * float(np.square(released.sum(axis=0)).sum())
    level = AffineLevel(2.0 * classes - 1.0, share * training.weight_decay)
    theta: list[FloatArray | None] = [None]

    def evaluate(x: FloatArray) -> tuple[float, FloatArray]:
        flat = (x - centre).reshape(len(x), -1)
        theta[0], value, gradient = level.evaluate(flat, target, theta[0])
        return share * value + rest, share * gradient.reshape(x.shape)

    return evaluate


def _classes(training: Stationary, labels: Array | None, count: int) -> Array:
    """Return class indices (count,): the known ones in turn, or as many of each."""
    if labels is None:
        return np.arange(count) % len(training.classes)
    known = np.array([training.classes.index(label) for label in labels.tolist()])
    return np.asarray(known[np.arange(count) % len(known)])
