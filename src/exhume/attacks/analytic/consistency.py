"""Records that return what was seen: the fixed point of X = Δ(X)⁺ ∂W.

Whoever knows the network can send any records through it and see what comes back to the first
layer, Δ(X). At the true records ∂W = Δ(X) X; solving for the X on the right, with the X on the left
taken from the last round, repairs an approximate unmixing in a few rounds. No sparsity is needed:
it serves activations that are smooth.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.attacks.analytic.factor import Factors
from exhume.attacks.analytic.layer import Backward, InputLayer
from exhume.knowledge import Knowledge

_MEMORY = 10


@dataclass(frozen=True, eq=False)
class Returned:
    """For rows of an unmixing: the best label's index (k,), and how far off Δ is (k,), in [0, 1].

    ``directions`` (width, k) is what each record returns with that label.
    """

    labels: Array
    residual: FloatArray
    directions: FloatArray


@dataclass(frozen=True, eq=False)
class Consistency:
    """Compares an unmixing with what its own records would return."""

    factors: Factors
    layer: InputLayer
    backward: Backward
    knowledge: Knowledge

    def records(self, unmixing: FloatArray) -> FloatArray:
        """Return the records (k, *record shape) of an unmixing, within the known range."""
        inputs = np.nan_to_num(self.factors.inputs(unmixing), posinf=1e6, neginf=-1e6)
        records = self.layer.records(inputs).reshape(-1, *self.knowledge.record_shape)
        bounds = self.knowledge.value_range
        return records if bounds is None else np.clip(records, *bounds)

    def returned(self, unmixing: FloatArray) -> Returned:
        """Return which labels explain the columns of Δ best, and how well."""
        columns = self.factors.left @ np.linalg.pinv(unmixing)
        every = self.backward.directions(self.records(unmixing))
        size = np.linalg.norm(every, axis=2) * np.linalg.norm(columns, axis=0)[:, None]
        cosine = np.einsum("kcm,mk->kc", every, columns) / np.maximum(size, 1e-300)
        if self.backward.step.classes is None:
            cosine = np.abs(cosine)
        labels = cosine.argmax(axis=1)
        best = cosine[np.arange(len(labels)), labels]
        residual = np.sqrt(np.clip(1.0 - np.clip(best, 0.0, 1.0) ** 2, 0.0, 1.0))
        return Returned(labels, residual, every[np.arange(len(labels)), labels].T)

    def solved(self, unmixing: FloatArray, *, rounds: int = 60) -> tuple[FloatArray, Returned]:
        """Iterate from an approximate unmixing (rank, rank); return the most consistent one met."""
        best = now = self.normalised(unmixing)
        seen = judged = self.returned(now)
        mixer = Anderson(_MEMORY)
        for _ in range(rounds):
            now = self.normalised(mixer.next(now, self.explaining(judged.directions)))
            judged = self.returned(now)
            if judged.residual.max() > 4.0 * max(seen.residual.max(), 1e-12):
                mixer = Anderson(_MEMORY)
                now, judged = best, seen
            elif np.mean(judged.residual) < np.mean(seen.residual):
                best, seen = now, judged
            if seen.residual.max() < 1e-9:
                break
        return best, seen

    def crept(
        self, unmixing: FloatArray, *, rounds: int = 100, pace: float = 0.3
    ) -> tuple[FloatArray, Returned]:
        """Iterate as ``solved`` does, by the share ``pace`` of each step and without acceleration.

        Whole steps can jump to and fro over the kink of a ReLU for ever; short ones come to rest.
        """
        best = now = self.normalised(unmixing)
        seen = judged = self.returned(now)
        for _ in range(rounds):
            now = self.normalised(now + pace * (self.explaining(judged.directions) - now))
            judged = self.returned(now)
            if np.mean(judged.residual) < np.mean(seen.residual):
                best, seen = now, judged
            if seen.residual.max() < 1e-9:
                break
        return best, seen

    def explaining(self, directions: FloatArray) -> FloatArray:
        """Return the unmixing whose columns of Δ come nearest to ``directions`` (width, rank)."""
        return self.normalised(np.linalg.lstsq(directions, self.factors.left, rcond=1e-12)[0])

    def normalised(self, unmixing: FloatArray) -> FloatArray:
        """Return the unmixing with the scale that the bias gradient gives each record."""
        scale = unmixing @ self.factors.scale
        return np.asarray(unmixing / np.where(np.abs(scale) > 1e-300, scale, 1.0)[:, None])


class Anderson:
    """Anderson acceleration of a fixed-point iteration (Walker & Ni 2011), with little memory."""

    def __init__(self, memory: int) -> None:
        self._steps: deque[tuple[FloatArray, FloatArray]] = deque(maxlen=memory)

    def next(self, now: FloatArray, proposed: FloatArray) -> FloatArray:
        """Return where to go from ``now``, given that the iteration proposes ``proposed``."""
        change = (proposed - now).ravel()
        self._steps.append((proposed.ravel(), change))
        if len(self._steps) == 1:
            return proposed
        values = np.array([value for value, _ in self._steps])
        changes = np.array([one for _, one in self._steps])
        differences = changes[:-1] - changes[-1]
        gram = differences @ differences.T
        gram += 1e-12 * max(float(np.trace(gram)), 1e-300) * np.eye(len(gram))
        share = np.linalg.solve(gram, -differences @ changes[-1])
        mixed = values[-1] + share @ (values[:-1] - values[-1])
        return np.asarray(mixed.reshape(now.shape))
