"""Training records as the upper level of a bilevel problem (Runkel et al. 2024)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from exhume.attacks.weights_only.read_weights import (
    HiddenLayer,
    KnownWeights,
    known_weights,
    trained,
)
from exhume.attacks.weights_only.record_counts import record_count, uncounted
from exhume.attacks.weights_only.starts import Start, UniformStart
from exhume.models.mlp import MLP
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.attack import ParsedAttack, Refusal, ThreatModel
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.release import Release
from exhume.training.optimisers import Adam
from exhume.training.stationary import Stationary

Level = Callable[[FloatArray], tuple[float, FloatArray]]
"""Maps records to ‖θ(x) − θ*‖² and its gradient in the records."""


@dataclass(frozen=True, eq=False)
class BilevelProblem:
    """Released weights, the training that comes to rest at them, and how many records it had.

    ``hidden`` is the network where it has one hidden layer of ReLUs.
    """

    weights: KnownWeights
    training: Stationary
    hidden: HiddenLayer | None
    count: int
    knowledge: Knowledge

    @property
    def classes(self) -> Array:
        """Class indices (count,): the known ones in turn, or as many of each."""
        names, labels = self.training.classes, self.knowledge.labels
        if labels is None:
            return np.arange(self.count) % len(names)
        known = np.array([names.index(label) for label in labels.tolist()])
        return np.asarray(known[np.arange(self.count) % len(known)])

    @property
    def centre(self) -> FloatArray:
        """What is subtracted from every record before training."""
        return self.weights.centre.reshape(self.knowledge.record_shape)


@dataclass(frozen=True)
class Bilevel(ParsedAttack[BilevelProblem]):
    """Changes records until training on them gives the released parameters.

    Minimises ‖θ* − θ(x)‖² over x, where θ(x) is the result of training on x, by Adam with the value
    range as a box. The gradient comes from the implicit function theorem. ``records`` is the number
    of training records (None: the number of known labels). The answer depends on ``start``: every
    reconstruction ends closest to where it started, and a small distance of the parameters does not
    make it real. With ``warm``, each training starts where the last one ended, which is cheap but
    drifts into other minima than the released one. Otherwise each starts at the released parameters
    and takes ten times as many ``lower_steps``. Affine classifiers of two classes are trained
    exactly, one hidden layer of ReLUs in the span of the records, any other network as it is.
    """

    records: int | None = None
    start: Start = field(default_factory=UniformStart)
    steps: int = 400
    rate: float = 0.01
    lower_steps: int = 40
    products: int = 30
    warm: bool = True
    name: ClassVar[str] = "bilevel"
    # By name alone: it trains the network anew at every step, and what it finds stays close to
    # its start: that shows where a search began rather than what was trained on.
    made_for: ClassVar[ThreatModel | None] = None

    def __post_init__(self) -> None:
        for what in ("steps", "lower_steps", "products"):
            if getattr(self, what) < 1:
                raise InputError(f"{what} must be at least 1, got {getattr(self, what)}")
        if self.records is not None and self.records < 1:
            raise InputError(f"records must be at least 1, got {self.records}")
        if not self.rate > 0:
            raise InputError(f"rate must be positive, got {self.rate}")

    def parse(self, release: Release, knowledge: Knowledge) -> BilevelProblem | Refusal:
        """Require weights that were trained to convergence, and the number of records."""
        weights = known_weights(release, knowledge)
        if isinstance(weights, Refusal):
            return weights
        training = resting_place(knowledge)
        if isinstance(training, Refusal):
            return training
        found = weights.hidden_layer()
        hidden = found if isinstance(found, HiddenLayer) else None
        if hidden is not None:
            count = record_count(self.records, hidden, knowledge)
        else:
            count = self.records or (None if knowledge.labels is None else len(knowledge.labels))
        if count is None:
            return uncounted(self.name)
        return BilevelProblem(weights, training, hidden, count, knowledge)

    def _solve(self, problem: BilevelProblem, rng: np.random.Generator) -> Reconstruction:
        training, knowledge = problem.training, problem.knowledge
        begun = self.start.draw(problem.count, knowledge.record_shape, rng)
        if knowledge.value_range is not None:
            begun = np.clip(begun, *knowledge.value_range)
        samples, values = self._descend(self._level(problem), begun, knowledge.value_range)
        size = sum(
            float(np.square(problem.weights.parameters[n]).sum())
            for n in training.network.parameter_shapes()
        )
        return Reconstruction(
            samples,
            Status.APPROXIMATE,
            labels=np.asarray(training.classes)[problem.classes],
            message="close to its own start; a small parameter distance does not make it real",
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
        """Run Adam with a falling rate; return the best records, the first and the best value."""
        state = Adam().start(x)
        best, first, lowest = x, math.nan, math.inf
        for step in range(self.steps):
            value, gradient = level(x)
            first = value if step == 0 else first
            if value < lowest:
                best, lowest = x, value
            rate = self.rate * 0.5 * (1.0 + math.cos(math.pi * step / self.steps))
            # The gradient may be tiny: Adam's usual epsilon would slow it down.
            x, state = Adam(rate, epsilon=1e-12).step(x, gradient, state)
            if value_range is not None:
                x = np.clip(x, *value_range)
        return best, (first, lowest)

    def _level(self, problem: BilevelProblem) -> Level:
        """Return the lower level: exact, in the records' span, or of the network as it is."""
        network = problem.training.network
        if isinstance(network, MLP) and not network.hidden and network.outputs < 3:
            return _affine(problem)
        if problem.hidden is not None:
            return self._hidden(problem, problem.hidden)
        return self._network(problem)

    def _hidden(self, problem: BilevelProblem, target: HiddenLayer) -> Level:
        """Return the lower level of one hidden layer, in the span of the records."""
        import torch

        from exhume.attacks.weights_only.bilevel.hidden import HiddenLevel

        level = HiddenLevel(
            *(problem.training, target, torch.tensor(problem.classes)),
            steps=self.lower_steps,
            products=self.products,
            warm=self.warm,
        )
        centre = problem.centre

        def evaluate(x: FloatArray) -> tuple[float, FloatArray]:
            value, gradient = level.evaluate(torch.tensor((x - centre).reshape(len(x), -1)))
            return value, np.asarray(gradient.numpy()).reshape(x.shape)

        return evaluate

    def _network(self, problem: BilevelProblem) -> Level:
        """Return the lower level of any network, trained as it is."""
        import torch

        from exhume.attacks.weights_only.bilevel.network import NetworkLevel

        training, centre = problem.training, problem.centre
        level = NetworkLevel(
            training, torch.tensor(problem.classes), steps=self.lower_steps, products=self.products
        )
        parameters = problem.weights.parameters
        named = {n: parameters[n] for n in training.network.parameter_shapes()}
        target = level.objective.flat(named)
        # Every adversary has the released parameters as a start; another may end elsewhere.
        theta = [target]

        def evaluate(x: FloatArray) -> tuple[float, FloatArray]:
            records = torch.tensor(x - centre)
            start = theta[0] if self.warm else target
            theta[0] = level.train(records, start, settled=start is not target)
            value, gradient = level.hypergradient(records, theta[0], target)
            return value, np.asarray(gradient.numpy())

        return evaluate


def resting_place(knowledge: Knowledge) -> Stationary | Refusal:
    """Return the problem that training solves at convergence, or why there is none."""
    training = trained(knowledge)
    if training is None:
        return Refusal("training must be known")
    if isinstance(training, Stationary):
        return training
    if training.classes is None:
        return Refusal("it trains classifiers, but this is a regression")
    if training.clipping is not None:
        return Refusal("records' gradients were clipped: training converges to another point")
    if not training.optimiser.weight_decay > 0:
        return Refusal("without weight decay training does not converge")
    return Stationary(training.network, training.classes, training.optimiser.weight_decay)


def _affine(problem: BilevelProblem) -> Level:
    """Return the exact lower level of an affine classifier."""
    from exhume.attacks.weights_only.bilevel.affine import AffineLevel

    weight, bias = (np.asarray(problem.weights.parameters[f"1.{n}"]) for n in ("weight", "bias"))
    released = np.column_stack([weight, bias]).astype(np.float64)
    target, share, rest = released[0], 1.0, 0.0
    if len(released) == 2:
        # Only the difference of two outputs matters, and decay divides it evenly: ±w/2.
        target, share = released[1] - released[0], 0.5
        rest = 0.5 * float(np.square(released.sum(axis=0)).sum())
    level = AffineLevel(2.0 * problem.classes - 1.0, share * problem.training.weight_decay)
    centre = problem.centre
    theta: list[FloatArray | None] = [None]

    def evaluate(x: FloatArray) -> tuple[float, FloatArray]:
        flat = (x - centre).reshape(len(x), -1)
        theta[0], value, gradient = level.evaluate(flat, target, theta[0])
        return share * value + rest, share * gradient.reshape(x.shape)

    return evaluate
