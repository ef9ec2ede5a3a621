"""Evidence for a candidate batch without the truth: the release it would have produced."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from exhume.attacks.gradients.matching.attack import known_labels
from exhume.attacks.gradients.matching.diagnosis import NEAR, truth_floor
from exhume.attacks.gradients.matching.loop import settle, without
from exhume.attacks.gradients.matching.objectives import (
    LayerCosine,
    batch_norm_distance,
    total_variation,
)
from exhume.attacks.gradients.matching.problem import MatchableRelease, problem_of
from exhume.attacks.gradients.portfolio.label_shares import given_labels
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.reconstruction import Reconstruction
from exhume.protocol.release import Gradient, Update


@dataclass(frozen=True, kw_only=True)
class HeldOutEvidence:
    """Statistics of one candidate batch, all from its own simulated release.

    ``distance`` is the mean of 1 − cos over the layers, weighted by size. ``unseen`` is the same
    over layers that were held out of the attack, or None. ``statistics`` is the distance from known
    batch-norm statistics. ``residual`` is ‖g − g*‖/‖g*‖, and ``floor`` is its value at the truth.
    ``variation`` is the images' total variation in units of a pixel's deviation. ``determined``
    says that the release has at least as many numbers as the batch.
    """

    distance: float
    unseen: float | None
    statistics: float | None
    residual: float
    floor: float
    variation: float | None
    determined: bool

    @property
    def exact(self) -> bool:
        """Whether the candidate explains a determined release up to rounding or noise."""
        return self.determined and self.residual <= NEAR * self.floor

    @property
    def objective(self) -> float:
        """The figure that ranks the candidates of every attack; lower is better."""
        seen = self.distance if self.unseen is None else self.unseen
        return seen + (self.statistics or 0.0)


class HeldOutJudge:
    """Simulates the releases that candidate batches would have produced."""

    def __init__(self, reading: MatchableRelease, rng: np.random.Generator) -> None:
        self._reading = reading
        self.labels = known_labels(reading, rng)
        self._problem = problem_of(reading, LayerCosine(), labels=self.labels, precision="float64")
        unknown = reading.count * math.prod(reading.knowledge.record_shape)
        self._determined = sum(a.size for a in reading.arrays.values()) >= unknown
        self.held = held_out(reading)

    @property
    def smooth(self) -> bool:
        """Whether the network has no ReLU."""
        return not self._problem.simulation.kinks.count

    def shown(self) -> Gradient | Update:
        """Return the release without the held-out layers."""
        release = self._reading.release
        rest = {n: a for n, a in release.arrays() if n not in self.held}
        if isinstance(release, Gradient):
            return Gradient(rest, release.batch_size)
        return Update(rest, release.batch_size, release.steps)

    def evidence(self, found: Reconstruction) -> HeldOutEvidence:
        """Judge a candidate batch; missing records are set to the middle of the range."""
        problem, frame = self._problem, self._problem.frame
        records = self.completed(found.samples)
        images = frame.tensor(records)
        labels = self._responses(found, records)
        settle(problem, images, labels)
        made = [g.detach() for g in problem.simulate(images, labels)]
        statistics = None
        if problem.statistics:
            seen = problem.simulation.watch.statistics[: len(problem.statistics)]
            statistics = _number(batch_norm_distance(seen, problem.statistics))
        pairs = zip(made, problem.released.values, strict=True)
        residual = math.sqrt(sum(float((g - t).double().square().sum()) for g, t in pairs))
        rounding = truth_floor(self._reading, problem, images, labels)
        return HeldOutEvidence(
            distance=_number(LayerCosine()(made, problem.released)),
            unseen=self._unseen(images, labels) if self.held else None,
            statistics=statistics,
            residual=residual if math.isfinite(residual) else math.inf,
            floor=rounding,
            variation=_number(total_variation(images, frame.spread)) if images.ndim > 2 else None,
            determined=self._determined,
        )

    def completed(self, samples: Array) -> FloatArray:
        """Return exactly as many records as are unknown."""
        count, shape = self._reading.count, self._reading.knowledge.record_shape
        records: FloatArray = np.full((count, *shape), self._problem.frame.middle)
        records[: len(samples)] = samples[:count]
        return records

    def pace(self, repeats: int = 2) -> float:
        """Return the processor time of one evaluation of the objective, in seconds."""
        import torch

        reading = self._reading
        problem = problem_of(reading, LayerCosine(), labels=self.labels, precision="float32")
        images = problem.frame.tensor(
            self.completed(np.empty((0, *reading.knowledge.record_shape)))
        )
        labels = given_labels(reading, images.double().numpy(), None, self.labels)
        y = problem.simulation.objective.responses(reading.step.responses(labels))
        times = []
        for _ in range(repeats):
            begun = time.process_time()
            x = images.clone().requires_grad_(True)
            torch.autograd.grad(problem.losses(x, y)[0], x, materialize_grads=True)
            times.append(time.process_time() - begun)
        return max(min(times), 1e-6)

    def _responses(self, found: Reconstruction, records: FloatArray) -> Tensor:
        """Return the candidate's own labels, or the known ones assigned to the best records."""
        step, objective = self._reading.step, self._problem.simulation.objective
        count = self._reading.count
        labels = found.labels
        if labels is None or len(labels) < count:
            labels = given_labels(self._reading, records, labels, self.labels)
        return objective.responses(step.responses(labels[:count]))

    def _unseen(self, images: Tensor, labels: Tensor) -> float:
        names = self._problem.simulation.names
        shown = [i for i, name in enumerate(names) if name not in self.held]
        checked = without(self._problem, shown)
        made = [g.detach() for g in checked.simulate(images, labels)]
        return _number(LayerCosine()(made, checked.released))


def held_out(reading: MatchableRelease) -> frozenset[str]:
    """Return the parameters to hold out of gradient matching, so that they can be predicted.

    These are every third matrix between the first and the last, which reveal most about records and
    labels. None are held out if there are fewer than three layers in between.
    """
    matrices = [n for n, a in reading.arrays.items() if a.ndim > 1 and a.any()]
    between = matrices[1:-1]
    return frozenset(between[1::3]) if len(between) > 1 else frozenset()


def _number(value: Tensor) -> float:
    found = float(value.detach())
    return found if math.isfinite(found) else math.inf
