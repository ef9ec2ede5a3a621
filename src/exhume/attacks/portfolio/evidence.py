"""What the adversary can tell of a candidate batch: what it would have released itself."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from exhume.arrays import Array, FloatArray
from exhume.attacks.matching.base import known_labels
from exhume.attacks.matching.core import settle, without
from exhume.attacks.matching.diagnosis import NEAR, truth_floor
from exhume.attacks.matching.objectives import LayerCosine, batch_norm_distance, total_variation
from exhume.attacks.matching.reading import Reading, problem_of
from exhume.attacks.portfolio.labels import given_labels
from exhume.reconstruction import Reconstruction
from exhume.release import Gradient, Release, Update


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Figures of one candidate batch, all from its own simulated release.

    ``distance`` is the mean of 1 − cos over the layers by size, ``unseen`` the same over layers
    that were held out of the attack, None where none were; ``statistics`` how far known
    batch-norm statistics are off; ``residual`` ‖g − g*‖/‖g*‖ and ``floor`` what the truth would
    leave of it. ``variation`` is the images' total variation in units of a pixel's deviation.
    ``determined``: the release has at least as many numbers as the batch.
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
        """Whether the release is explained down to rounding or noise, and long enough to tell."""
        return self.determined and self.residual <= NEAR * self.floor

    @property
    def objective(self) -> float:
        """What candidates are compared by, lower is better: one figure for every attack."""
        seen = self.distance if self.unseen is None else self.unseen
        return seen + (self.statistics or 0.0)


class Judge:
    """Simulates what candidate batches would have released."""

    def __init__(self, release: Release, reading: Reading, rng: np.random.Generator) -> None:
        self._reading = reading
        self.labels = known_labels(release, reading, rng)
        self._problem = problem_of(reading, LayerCosine(), labels=self.labels, precision="float64")
        unknown = reading.count * math.prod(reading.knowledge.record_shape)
        self._determined = sum(a.size for a in reading.arrays.values()) >= unknown
        self.held = held_out(reading)

    @property
    def smooth(self) -> bool:
        """Whether the network has no ReLU."""
        return not self._problem.simulation.kinks.count

    def shown(self, release: Release) -> Release:
        """Return the release without the layers that are held out."""
        assert isinstance(release, Gradient | Update)
        rest = {n: a for n, a in release.arrays() if n not in self.held}
        if isinstance(release, Gradient):
            return Gradient(rest, release.batch_size)
        return Update(rest, release.batch_size, release.steps)

    def evidence(self, found: Reconstruction) -> Evidence:
        """Judge a candidate batch; missing records are filled in with the middle of the range."""
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
        return Evidence(
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
        """Return the seconds of the processor that one evaluation of the objective takes."""
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
        """Return the candidate's own labels, or the known ones dealt to the records they suit."""
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


def held_out(reading: Reading) -> frozenset[str]:
    """Return the parameters to hold out of gradient matching, so that they can be predicted.

    Every third matrix between the first and the last: those two tell most of records and labels.
    None where there are fewer than three layers between them.
    """
    matrices = [n for n, a in reading.arrays.items() if a.ndim > 1 and a.any()]
    between = matrices[1:-1]
    return frozenset(between[1::3]) if len(between) > 1 else frozenset()


def _number(value: Tensor) -> float:
    found = float(value.detach())
    return found if math.isfinite(found) else math.inf
