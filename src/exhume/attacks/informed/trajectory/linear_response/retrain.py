"""Real trainings, with and without one more record: the truth that predictions are held to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from exhume.protocol.arrays import Array
from exhume.protocol.errors import InputError
from exhume.protocol.records import Records
from exhume.training.network import Training

_NODES, _LATE = 14, 1.7
"""Steps at which a path is kept: denser at the start, where parameters move most."""


@dataclass(frozen=True, eq=False)
class TrainedPath:
    """θ at the kept steps (k, P), and at the end (P,)."""

    kept: Tensor
    end: Tensor


class RealTrainings:
    """The training on the fixed set and one more, last record."""

    def __init__(self, training: Training, fixed_set: Records, target_weight: float = 1.0) -> None:
        self.training, self.objective = training, training.objective()
        self.target_weight = target_weight
        weight = np.ones(len(fixed_set)) if fixed_set.weight is None else fixed_set.weight
        self.fixed_set = Records(fixed_set.x, fixed_set.y, weight)
        self.count = len(fixed_set) + 1
        self.steps = training.step_count(self.count)
        self.nodes = kept_steps(self.steps)

    @property
    def work(self) -> float:
        """Return records × parameters × steps: about the cost of a training."""
        return float(self.count) * self.objective.size * self.steps

    @property
    def mass(self) -> float:
        """Return the weights of the fixed set over the number of records."""
        assert self.fixed_set.weight is not None
        return float(self.fixed_set.weight.sum()) / self.count

    def without(self) -> TrainedPath:
        """Train with the record's loss weighted 0; raises InputError if that diverges."""
        blank = np.zeros((1, *self.fixed_set.record_shape))
        return self._path(blank, self.fixed_set.labels[:1], 0.0)

    def path(self, x: Array, label: Array) -> TrainedPath | None:
        """Train with a record (1, *shape) of label (1,); None if that diverges."""
        try:
            return self._path(x, label, self.target_weight)
        except InputError:
            return None

    def _path(self, x: Array, label: Array, weight: float) -> TrainedPath:
        data = self.fixed_set.with_record(Records(x, label, np.array([weight])))
        wanted, kept = set(self.nodes), []
        walk = self.training.walk(self.objective, data, rng=np.random.default_rng(0))
        for number, step in enumerate(walk):
            if number in wanted:
                kept.append(step.theta.detach())
        return TrainedPath(torch.stack(kept), step.theta.detach())


def kept_steps(steps: int) -> tuple[int, ...]:
    """Return at most 14 of the steps 0 … steps − 1, the first and the last among them.

    >>> kept_steps(100)[:8]
    (0, 1, 4, 8, 13, 20, 27, 35)
    """
    shares = np.linspace(0.0, 1.0, min(_NODES, steps)) ** _LATE
    return tuple(sorted({round(float(share) * (steps - 1)) for share in shares}))
